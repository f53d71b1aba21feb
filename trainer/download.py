"""One file from the web, whole and checked: downloads in parts with progress, takes up what an earlier run began, verifies it.

    download(url, file); verify(file, "sha256", checksum)

The file has its name only when all of it is there. Until then it is `<name>.part`, of the full size and with holes, and
`<name>.whole` has a byte for each part: 1 when that part is written and flushed. A server that does not answer Range requests
is asked for all of it in one stream.
"""

import hashlib
import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path

PART_BYTES = 16 * 2**20  # a run that is killed repeats at most this for each connection
CONNECTIONS = 8  # a server or a path often limits each; few servers mind eight, and a refusal only slows its own part down
_ATTEMPTS, _PAUSE_SECONDS = 8, 1.0  # without any progress; the pause doubles, so that they take 4 minutes
_SILENCE_SECONDS = 60.0
_CHUNK = 2**20
_SAY_SECONDS = 10.0


class DownloadError(Exception):
    """The file cannot be had; the message says why and what to do."""


def download(url: str, file: Path) -> None:
    """Raises DownloadError. Safe to kill: the next call goes on."""
    if file.exists():
        return
    for _ in range(_ATTEMPTS):
        try:
            _Download(url, file).run()
        except _ChangedError as error:
            say(f"{url}: {error}; starting afresh")
        else:
            return
    raise DownloadError(f"{url}: the server gave another file {_ATTEMPTS} times while it was downloaded: check the address")


class _ChangedError(Exception):
    """The parts do not fit the server's file."""


@dataclass
class _Part:
    number: int
    at: int  # the next byte that is missing
    end: int


class _Download:
    """One run. `_total` is None until the server has said the size of a file that it gives in parts."""

    def __init__(self, url: str, file: Path) -> None:
        self._url, self._file = url, file
        self._partial, self._map = (file.with_name(file.name + ending) for ending in (".part", ".whole"))
        self._total = self._size_of_earlier_run()
        self._parts: list[_Part] = []
        self._lock, self._over = threading.Lock(), threading.Event()
        self._progress, self._there, self._came = DownloadProgress(), 0, 0  # bytes of whole parts of earlier runs; of this one

    def run(self) -> None:
        """Raises DownloadError, and _ChangedError with everything removed."""
        try:
            if self._total is None:
                self._until_done(self._begin, lambda: self._came)
            if self._total is not None:
                self._fetch_missing()
        except _ChangedError:
            self._partial.unlink(missing_ok=True)
            self._map.unlink(missing_ok=True)
            raise
        self._partial.rename(self._file)
        self._map.unlink(missing_ok=True)

    def _size_of_earlier_run(self) -> int | None:
        """The size of the file whose parts are there; None where there are none that can be taken up."""
        if not self._map.exists() or not self._partial.exists():
            return None
        size = self._partial.stat().st_size
        return size if self._map.stat().st_size == _count(size) else None

    # ------------------------------------------------------------------------------------------------------------ requests

    def _begin(self) -> None:
        """Ask for the first part. A server that gives all of the file instead is read to the end."""
        if self._total is not None:
            return  # an attempt that broke off has learnt it: its part goes on among the others
        try:
            answer = self._ask(f"bytes=0-{PART_BYTES - 1}")
        except urllib.error.HTTPError as error:
            if error.code != 416:
                raise
            answer = self._ask(None)  # of an empty file no part can be given
        with answer:
            total = _total(answer, 0) if answer.status == 206 else None
            if total is None:
                self._stream(answer)
                return
            self._map.unlink(missing_ok=True)
            with self._partial.open("wb") as made:
                made.truncate(total)
                os.fsync(made.fileno())
            self._map.write_bytes(bytes(_count(total)))
            self._total, first = total, _Part(0, 0, min(PART_BYTES, total))
            self._parts = [first]
            self._take(answer, first)

    def _stream(self, answer: HTTPResponse) -> None:
        """Write the whole file from one answer. Raises ConnectionError when it ends too early: there is no going on."""
        self._map.unlink(missing_ok=True)
        length = int(answer.headers["Content-Length"]) if answer.headers.get("Content-Length") else None
        at = 0
        with self._partial.open("wb") as file:
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
                at += len(chunk)
                self._progress.say(f"downloaded {megabytes(at)}" + (f" of {megabytes(length)}" if length else ""))
        if length is not None and at != length:
            raise ConnectionError(f"{at} of {length} bytes came, and the server has no Range requests: all of it again")

    def _fetch_missing(self) -> None:
        """Have all parts, by several connections at once."""
        assert self._total is not None
        begun = {part.number: part for part in self._parts}
        whole = self._map.read_bytes()
        missing = [
            begun.get(number) or _Part(number, number * PART_BYTES, min((number + 1) * PART_BYTES, self._total))
            for number in range(_count(self._total))
            if not whole[number]
        ]
        self._there = self._total - self._came - sum(part.end - part.at for part in missing)
        if self._there > 0:
            say(f"going on: {megabytes(self._there)} of {megabytes(self._total)} are there")
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            try:
                for _ in threads.map(self._fetch, missing):
                    pass
            finally:
                self._over.set()
                threads.shutdown(cancel_futures=True)

    def _fetch(self, part: _Part) -> None:
        def attempt() -> None:
            if part.at == part.end:
                self._keep(part)
                return
            try:
                answer = self._ask(f"bytes={part.at}-{part.end - 1}")
            except urllib.error.HTTPError as error:
                if error.code != 416:
                    raise
                raise _ChangedError("the file has become shorter") from error
            with answer:
                if answer.status != 206 or _total(answer, part.at) != self._total:
                    raise _ChangedError("the server gives another file now, or no parts any more")
                self._take(answer, part)

        self._until_done(attempt, lambda: part.at)

    def _ask(self, wanted: str | None) -> HTTPResponse:
        request = urllib.request.Request(self._url, headers={"Range": wanted} if wanted else {})  # noqa: S310 - datasets.py checks
        answer: HTTPResponse = urllib.request.urlopen(request, timeout=_SILENCE_SECONDS)  # noqa: S310
        return answer

    def _take(self, answer: HTTPResponse, part: _Part) -> None:
        """Write what comes of the part. Raises ConnectionError when it ends too early."""
        with self._partial.open("r+b", buffering=0) as file:
            while part.at < part.end and not self._over.is_set():
                chunk = answer.read(min(_CHUNK, part.end - part.at))
                if not chunk:
                    raise ConnectionError(f"{part.end - part.at} bytes of a part are missing")
                _write(file.fileno(), chunk, part.at)
                part.at += len(chunk)
                self._count(len(chunk))
        if part.at == part.end:
            self._keep(part)

    def _keep(self, part: _Part) -> None:
        """Note that a part is whole, after it is on the disk: a machine that dies takes unwritten pages with it."""
        with self._partial.open("r+b", buffering=0) as file:
            os.fsync(file.fileno())
        with self._map.open("r+b", buffering=0) as file:
            _write(file.fileno(), b"\1", part.number)

    def _count(self, size: int) -> None:
        with self._lock:
            self._came += size
            if self._total is not None:
                self._progress.say(f"downloaded {megabytes(self._there + self._came)} of {megabytes(self._total)}")

    def _until_done(self, attempt: Callable[[], None], own: Callable[[], int]) -> None:
        """Repeat what breaks off. It is given up when nothing has come to any connection meanwhile: a server that refuses some
        of them is asked for their parts later, ever less often. `own`: what has come by this one."""
        failures = idle = 0
        while not self._over.is_set():
            before, came = own(), self._came
            try:
                attempt()
                return
            except urllib.error.HTTPError as error:
                if error.code < 500 and error.code not in (408, 429):
                    raise DownloadError(
                        f"{self._url}: the server answers {error.code} {error.reason}: check the address"
                    ) from error
                reason = f"{error.code} {error.reason}"
            except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError) as error:
                reason = str(getattr(error, "reason", error)) or type(error).__name__
            failures = 0 if own() > before else failures + 1
            idle = 0 if self._came > came else idle + 1
            if idle == _ATTEMPTS:
                raise DownloadError(
                    f"{self._url}: no progress in {_ATTEMPTS} attempts, the last one: {reason}. Run it again: it goes on here"
                )
            say(f"the download broke off ({reason}); going on at {megabytes(own())}")
            self._over.wait(_PAUSE_SECONDS * 2 ** min(failures, _ATTEMPTS))


def _count(size: int) -> int:
    """The number of parts."""
    return -(-size // PART_BYTES)


def _total(answer: HTTPResponse, start: int) -> int | None:
    """The size of the file that this is a part of, which begins at `start`; None where the server does not say it."""
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
    return int(found[2]) if found and int(found[1]) == start else None


def _write(descriptor: int, content: bytes, at: int) -> None:
    while content:
        done = os.pwrite(descriptor, content, at)
        content, at = content[done:], at + done


def verify(file: Path, algorithm: str, checksum: str) -> None:
    """Raises DownloadError, and removes the file, if its checksum is another: the next download starts afresh."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    size = 0
    with file.open("rb") as opened:
        while chunk := opened.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    if digest.hexdigest() != checksum.lower():
        file.unlink()
        raise DownloadError(
            f"the {algorithm} of the download is {digest.hexdigest()} ({size} bytes), and {checksum} is wanted: the address "
            "gives another file, or the checksum in the stack's file is wrong. The download was removed"
        )
    say(f"{megabytes(size)} with the right {algorithm}")


class DownloadProgress:
    """Says how far something is, not too often."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _SAY_SECONDS

    def say(self, text: str) -> None:
        if time.monotonic() >= self._next:
            say(text)
            self._next = time.monotonic() + _SAY_SECONDS


def say(text: str) -> None:
    print(text, flush=True)


def megabytes(size: int) -> str:
    """12 MB; of 1000, as disks and networks are sold."""
    return f"{size / 1e6:.0f} MB"
