"""Requests to a metadata service that end in time, whatever answers: no proxy, no redirect, no name that must be resolved.

    service = Metadata("http://169.254.169.254", timeout_seconds=2)
    answer = service.ask("GET", "/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token})
    answer.status, answer.text(), answer.json(), answer.seconds_until("2026-11-21T08:22:00Z")

The limit is for the whole request: a service that sends a byte now and then, or whose answers are dropped on the way (a hop
limit of 1, seen from a container), costs `timeout_seconds` and no more. HTTP statuses are not judged here.

    MetadataError
      Unanswered   no whole answer in time, or no connection: ask again later
      Refused      a status that is no answer; `retry_seconds` if the service named a pause
      Garbled      an answer that is not what the cloud documents: ask again, it may be half-written
"""

from __future__ import annotations

import email.utils
import http.client
import json
import os
import socket
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ebb.compat import UTC

_LARGEST_BYTES = 1 << 20  # a scale set of a thousand machines fits; an endless answer does not


class MetadataError(Exception):
    """The service told nothing; the message says what it did instead."""


class Unanswered(MetadataError):
    """No whole answer in time."""


class MetadataRefused(MetadataError):
    """An HTTP status that is no answer."""

    def __init__(self, text: str, *, status: int, retry_seconds: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_seconds = retry_seconds


class Garbled(MetadataError):
    """Not what the cloud documents."""


@dataclass(frozen=True)
class Answer:
    """A whole answer. Header names are in small letters."""

    question: str
    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    def text(self) -> str:
        return self.body.decode("utf-8", "replace").strip()

    def json(self) -> Any:
        """Raises Garbled."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise Garbled(f"{self.question} answered with something that is not JSON: {error}") from None

    def refused(self) -> MetadataRefused:
        """The error for a status that the caller knows no use for."""
        pause = self.headers.get("retry-after", "")
        retry_seconds = float(pause) if pause.isdigit() else None
        return MetadataRefused(f"{self.question} answered {self.status}", status=self.status, retry_seconds=retry_seconds)

    def seconds_until(self, when: str) -> float | None:
        """Seconds from this answer to a time in it; None when it is no time.

        Counted from the answer's own Date where it has one: this machine's clock may be wrong.
        """
        moment, sent = parse_time(when), parse_time(self.headers.get("date", ""))
        return None if moment is None else moment - (time.time() if sent is None else sent)


class Metadata:
    """One service; one connection per request, so that a restart of the service is not noticed."""

    def __init__(self, address: str, *, timeout_seconds: float) -> None:
        parts = urllib.parse.urlsplit(address)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._timeout_seconds = timeout_seconds

    def ask(
        self, method: str, path: str, headers: Mapping[str, str], *, body: bytes | None = None, timeout_seconds: float = 0.0
    ) -> Answer:
        """One request; `timeout_seconds` replaces the service's own limit. Raises Unanswered."""
        limit = timeout_seconds or self._timeout_seconds
        question = f"{method} http://{self._host}{path}"
        connection = http.client.HTTPConnection(self._host, self._port)
        try:
            connection.sock = _connect(self._host, self._port, time.monotonic() + limit)
            connection.request(method, path, body=body, headers={"Connection": "close", **headers})
            response = connection.getresponse()
            content = response.read(_LARGEST_BYTES + 1)
        except (TimeoutError, socket.timeout):  # two before Python 3.10
            raise Unanswered(f"{question} gave no whole answer in {limit:g} s") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unanswered(f"{question} failed: {_reason(error)}") from None
        finally:
            connection.close()
        if len(content) > _LARGEST_BYTES:
            raise Unanswered(f"{question} answers without an end")
        fields = {name.lower(): value for name, value in response.getheaders()}
        return Answer(question, response.status, fields, content)


def parse_time(text: str) -> float | None:
    """Unix seconds of an RFC 3339 or RFC 1123 time, None if it is neither. Without a time zone it is UTC, as clouds mean it."""
    for parse in (datetime.fromisoformat, email.utils.parsedate_to_datetime):
        try:
            moment = parse(text.strip().removesuffix("Z"))  # which Python reads since 3.11
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
    return None


class _Limited(socket.socket):
    """Every wait of this connection ends at one moment."""

    ends_at = 0.0

    def _limit(self) -> None:
        left = self.ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.settimeout(left)

    def recv_into(self, *arguments: Any) -> int:
        self._limit()
        return super().recv_into(*arguments)

    def sendall(self, *arguments: Any) -> None:
        self._limit()
        super().sendall(*arguments)


def _connect(host: str, port: int, ends_at: float) -> _Limited:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    connection = _Limited(family, kind, protocol)
    connection.ends_at = ends_at
    connection.settimeout(max(0.001, ends_at - time.monotonic()))
    try:
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return f"{type(error).__name__} {str(error)[:100]}".strip()
