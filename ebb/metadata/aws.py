"""AWS: the two-minute notice of a spot machine, scheduled events and the rebalance recommendation, from instance metadata.

The first and the last path answer 404 while nothing is announced, that of scheduled events an empty list. A scheduled event
(reboot, stop, retirement, maintenance) ends the machine's programs, days ahead as a rule; what is over stays in the list as
`completed` or `canceled`.

Every request needs a session token (version 2 of the service), which lasts 6 hours and is asked for again when it is refused
(401). Throttled requests get 503; a switched-off service gives 403. From a container behind a bridge the token's answer is
dropped when the instance's hop limit is 1: that looks like a service that never answers.

Source: EC2 user guide, "Spot Instance interruption notices" (poll every 5 seconds), "EC2 instance rebalance recommendations",
"Scheduled events for your instances", "Use the Instance Metadata Service"; the shape of scheduled events as in
aws-node-termination-handler, pkg/ec2metadata/ec2metadata.go; AWS_EC2_METADATA_SERVICE_ENDPOINT as in AWS's SDKs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ebb.metadata.announcement import Announcement
from ebb.metadata.service import Answer, Garbled, Metadata, MetadataError, Unanswered

ADDRESS = "http://169.254.169.254"
_TOKEN = "/latest/api/token"  # noqa: S105
_ACTION = "/latest/meta-data/spot/instance-action"
_SCHEDULED = "/latest/meta-data/events/maintenance/scheduled"
_REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
_TOKEN_SECONDS = 21600  # the longest that the service allows
# A reclaim that AWS could not carry out stays announced, with its time in the past.
_STALE_SECONDS = 300


class Aws:
    """Instance metadata of one EC2 machine."""

    name = "AWS"
    poll_seconds = 5.0
    retry_seconds = 15.0  # an eighth of the warning time

    def __init__(self, environment: Mapping[str, str], *, timeout_seconds: float = 2.0) -> None:
        address = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or ADDRESS
        self._service = Metadata(address, timeout_seconds=timeout_seconds)
        self._token = ""

    def look(self) -> Announcement | None:
        """The reclaim; a scheduled event that is near; the risk of a reclaim; a scheduled event that is far."""
        if reclaim := self._reclaim():
            return reclaim
        event = self._event()
        return event if event and event.imminent else self._risk() or event

    def left(self) -> str | None:
        """AWS does not want to know."""
        return None

    def _reclaim(self) -> Announcement | None:
        answer = self._get(_ACTION)
        if answer is None:
            return None
        planned = answer.json()
        if not isinstance(planned, dict) or not isinstance(planned.get("action"), str):
            raise Garbled(f"{answer.question} answered without an action")
        action, when = planned["action"], str(planned.get("time", ""))
        left = answer.seconds_until(when)
        if left is not None and left < -_STALE_SECONDS:
            return None
        if action == "hibernate":
            left = None  # it begins at once, without the two minutes
        text = f"AWS takes this machine back ({action}{'' if left is None else f' at {when}'})"
        return Announcement(key=f"{action} {when}", text=text, reclaim=True, seconds_left=left)

    def _event(self) -> Announcement | None:
        """The scheduled event that comes first."""
        answer = self._get(_SCHEDULED)
        events = answer.json() if answer else []
        if answer and not isinstance(events, list):
            raise Garbled(f"{answer.question} answered without a list of events")
        coming = [_announce(answer, event) for event in events if answer and isinstance(event, dict) and _is_active(event)]
        return min(coming, key=lambda each: each.seconds_left or 0.0, default=None)

    def _risk(self) -> Announcement | None:
        answer = self._get(_REBALANCE)
        if answer is None:
            return None
        advice = answer.json()
        when = str(advice.get("noticeTime", "")) if isinstance(advice, dict) else ""
        return Announcement(key=f"rebalance {when}", text="AWS says that this machine may be taken back soon", reclaim=False)

    def _get(self, path: str) -> Answer | None:
        """The answer, None for 404. Raises MetadataError."""
        answer = self._service.ask("GET", path, {"X-aws-ec2-metadata-token": self._token or self._renew()})
        if answer.status == 401:
            answer = self._service.ask("GET", path, {"X-aws-ec2-metadata-token": self._renew()})
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise answer.refused()
        return answer

    def _renew(self) -> str:
        self._token = ""
        lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_SECONDS)}
        try:
            answer = self._service.ask("PUT", _TOKEN, lifetime)
        except Unanswered as error:
            raise Unanswered(
                f"{error}; in a container, give it the host's network or raise the instance's metadata hop limit to 2"
            ) from None
        if answer.status == 403:
            raise MetadataError(f"{answer.question} answered 403: instance metadata is switched off for this machine")
        if answer.status != 200:
            raise answer.refused()
        if not answer.text().isascii() or not answer.text():
            raise Garbled(f"{answer.question} answered with something that is no token")
        self._token = answer.text()
        return self._token


def _is_active(event: Mapping[str, Any]) -> bool:
    return str(event.get("State", "")).casefold() not in ("completed", "canceled")


def _announce(answer: Answer, event: Mapping[str, Any]) -> Announcement:
    kind, when = str(event.get("Code", "event")), str(event.get("NotBefore", ""))
    left = answer.seconds_until(when)
    text = f"AWS ends the programs of this machine ({kind}{'' if left is None else f', not before {when}'})"
    return Announcement(key=str(event.get("EventId", f"{kind} {when}")), text=text, reclaim=True, seconds_left=left)
