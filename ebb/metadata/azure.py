"""Azure: scheduled events, from the instance metadata service.

    Preempt    a spot machine is deleted, 30 seconds ahead at least (best effort)
    Terminate  a scale set deletes the machine, 5 to 15 minutes ahead
    Reboot, Redeploy   its processes end, 10 minutes to some days ahead; at once when the host has failed
    Freeze     it stands still for seconds and keeps its memory: nothing to do

The first request switches the service on for the machine: its answer may take two minutes, and events come up to five minutes
later. A document lists the events of all machines of an availability set or scale set, so an event counts only when it names
this one; `NotBefore` is empty once it has begun. An event may be withdrawn. `left()` approves the event, which lets Azure begin
before its time, and only when it names no other machine, since an approval holds for all that it names.

Source: Azure documentation, "Scheduled Events for Linux VMs", version 2020-07-01 (ask once per second).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ebb.metadata.announcement import Announcement
from ebb.metadata.service import Answer, Garbled, Metadata, MetadataError

ADDRESS = "http://169.254.169.254"
_EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
_NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
_HEADERS = {"Metadata": "true"}
_TRIES = 3  # to learn the own name before doing without
_MEANINGS = {
    "Preempt": "takes this machine back",
    "Terminate": "deletes this machine",
    "Redeploy": "moves this machine to another host, without its memory",
    "Reboot": "restarts this machine",
}


class Azure:
    """Scheduled events of one virtual machine."""

    name = "Azure"
    poll_seconds = 1.0
    retry_seconds = 5.0  # a sixth of the warning time

    def __init__(
        self,
        _environment: Mapping[str, str],
        *,
        address: str = ADDRESS,
        timeout_seconds: float = 5.0,
        first_seconds: float = 150.0,  # two minutes are documented
    ) -> None:
        self._service = Metadata(address, timeout_seconds=timeout_seconds)
        self._timeout_seconds = timeout_seconds
        self._first_seconds = first_seconds
        self._own_name = ""
        self._to_approve = ""
        self._nameless = 0

    def look(self) -> Announcement | None:
        """The event of this machine that comes first."""
        answer = self._get(_EVENTS, self._first_seconds or self._timeout_seconds)
        self._first_seconds = 0.0
        document = answer.json()
        events = document.get("Events") if isinstance(document, dict) else None
        if not isinstance(events, list):
            raise Garbled(f"{answer.question} answered without a list of events")
        name = self._name()
        found = [self._announcement(answer, event) for event in events if isinstance(event, dict) and _concerns(event, name)]
        coming = sorted(found, key=lambda each: each.seconds_left or 0.0)
        self._to_approve = _event_for_one(events, coming[0].key) if coming and name else ""
        return coming[0] if coming else None

    def left(self) -> str | None:
        if not self._to_approve:
            return None
        body = json.dumps({"StartRequests": [{"EventId": self._to_approve}]}).encode()
        answer = self._service.ask("POST", _EVENTS, {**_HEADERS, "Content-Type": "application/json"}, body=body)
        if answer.status != 200:
            raise answer.refused()
        return f"told Azure that its event {self._to_approve} may begin"

    def _name(self) -> str:
        """As events name this machine; "" when the service does not tell. Raises MetadataError the first times."""
        if self._own_name:
            return self._own_name
        try:
            self._own_name = self._get(_NAME, self._timeout_seconds).text().casefold()
        except MetadataError:
            self._nameless += 1
            if self._nameless < _TRIES:
                raise
        return self._own_name

    def _announcement(self, answer: Answer, event: Mapping[str, Any]) -> Announcement:
        kind, when = str(event["EventType"]), str(event.get("NotBefore") or "")
        begun = str(event.get("EventStatus")).casefold() == "started"
        text = f"Azure {_MEANINGS[kind]} ({kind}{' has begun' if begun else f', not before {when}'})"
        left = None if begun else answer.seconds_until(when)
        return Announcement(key=str(event.get("EventId", "")), text=text, reclaim=True, seconds_left=left)

    def _get(self, path: str, timeout_seconds: float) -> Answer:
        answer = self._service.ask("GET", path, _HEADERS, timeout_seconds=timeout_seconds)
        if answer.status != 200:
            raise answer.refused()
        return answer


def _concerns(event: Mapping[str, Any], name: str) -> bool:
    """Without a name every event does: leaving for nothing costs less than being killed."""
    return str(event.get("EventType")) in _MEANINGS and (not name or name in _machines(event))


def _machines(event: Mapping[str, Any]) -> list[str]:
    names = event.get("Resources")
    return [str(name).casefold() for name in names] if isinstance(names, list) else []


def _event_for_one(events: list[Any], key: str) -> str:
    """The id of the event if it names one machine only and has not begun."""
    for event in events:
        if isinstance(event, dict) and event.get("EventId") == key and len(_machines(event)) == 1:
            return "" if str(event.get("EventStatus")).casefold() == "started" else key
    return ""
