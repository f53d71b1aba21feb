"""The marks that an agent writes for a cloud's announcements, and for servers that misbehave. The clock is fake."""

import threading
import time
from collections.abc import Iterator

import pytest

from ebb.api import reclaim
from ebb.api.reclaim import NOTHING, Mark
from ebb.metadata.announcement import Announcement, Source
from ebb.metadata.aws import Aws
from ebb.metadata.azure import Azure
from ebb.metadata.gcp import Gcp
from ebb.metadata.service import MetadataError
from ebb.notices.agent import Agent, Marker
from ebb.notices.node import NodeError
from tests.elastic.machines import until
from tests.metadata.clouds import AwsMetadata, AzureMetadata, Fake, GcpMetadata, Reply, serve

NOW = 1_000_000.0
Said = Announcement | None | Exception


class Script:
    """A source that says one thing after the other, the last for ever."""

    name, poll_seconds, retry_seconds = "Cloud", 5.0, 15.0

    def __init__(self, *says: Said) -> None:
        self._says = list(says)

    def look(self) -> Announcement | None:
        said = self._says.pop(0) if len(self._says) > 1 else self._says[0]
        if isinstance(said, Exception):
            raise said
        return said

    def left(self) -> str | None:
        return None


class Watched:
    """An agent, and the marks that it wanted."""

    def __init__(self, source: Source) -> None:
        self.now = NOW
        self.marks: list[Mark] = []
        self.lines: list[str] = []
        self.agent = Agent(source, self.marks.append, self.lines.append, lambda: self.now)

    def after(self, looks: int) -> list[Mark]:
        for _ in range(looks):
            self.agent.look()
        return self.marks


def reclaimed(seconds_left: float | None, key: str = "k", *, promised: bool = False) -> Announcement:
    return Announcement(key=key, text="The cloud takes it", reclaim=True, seconds_left=seconds_left, promised=promised)


RISK = Announcement(key="r", text="The cloud may take it", reclaim=False)


def test_a_reclaim_has_its_deadline_in_the_message() -> None:
    (mark,) = Watched(Script(reclaimed(90))).after(3)
    assert mark == Mark(noticed=True, reason="Reclaim", message="This machine goes at 1970-01-12T13:48:10Z: The cloud takes it.")


@pytest.mark.parametrize("said", [reclaimed(None), reclaimed(30, promised=True)], ids=["no time", "a promise"])
def test_a_time_that_the_announcement_does_not_name_is_left_to_the_controller(said: Announcement) -> None:
    assert Watched(Script(said)).after(1) == [reclaim.notice("Reclaim", "The cloud takes it", None)]


def test_a_deadline_does_not_move_with_the_clock_but_comes_nearer() -> None:
    watched = Watched(
        Script(reclaimed(90), reclaimed(91.5), reclaimed(89), reclaimed(None), reclaimed(20), reclaimed(60, "other"))
    )
    assert [mark.message.split(": ")[0][-9:] for mark in watched.after(6)] == ["13:48:10Z", "13:47:00Z", "13:47:40Z"]


def test_a_reclaim_far_ahead_is_planned_until_two_minutes_before() -> None:
    marks = Watched(Script(reclaimed(86400), reclaimed(121), reclaimed(119))).after(3)
    assert [(mark.noticed, mark.reason) for mark in marks] == [(False, "Planned"), (True, "Reclaim")]


def test_a_risk_makes_nobody_leave() -> None:
    assert Watched(Script(RISK)).after(2) == [Mark(noticed=False, reason="AtRisk", message="The cloud may take it.")]


@pytest.mark.parametrize("said", [reclaimed(90), reclaimed(86400), RISK], ids=["near", "far", "risk"])
def test_a_notice_that_is_withdrawn_leaves_no_mark(said: Announcement) -> None:
    assert Watched(Script(said, None)).after(3)[1:] == [NOTHING]


def test_no_answer_changes_nothing() -> None:
    watched = Watched(Script(MetadataError("it hangs"), reclaimed(90), *[MetadataError("it hangs")] * 5, None))
    assert [mark.noticed for mark in watched.after(7)] == [True]
    assert watched.lines[1] == "cannot hear notices of Cloud: it hangs; asking goes on"
    assert watched.after(1)[-1] == NOTHING


# --- The clouds' own answers ----------------------------------------------------------------------------------------------------


@pytest.fixture
def aws() -> Iterator[AwsMetadata]:
    with serve(AwsMetadata()) as cloud:
        yield cloud


def test_aws(aws: AwsMetadata) -> None:
    watched = Watched(Aws({"AWS_EC2_METADATA_SERVICE_ENDPOINT": aws.address}, timeout_seconds=0.5))
    assert watched.after(2) == [NOTHING]
    aws.rebalance = {"noticeTime": aws.stamp(0)}
    assert watched.after(1)[-1].reason == "AtRisk"
    aws.action = {"action": "terminate", "time": aws.stamp(120)}
    aws.expire_token()
    assert watched.after(1)[-1].noticed
    for wrong in (Reply(503), Fake.HANG, Fake.DRIP, Reply(200, b"<html>")):
        aws.next_replies = [wrong]
        assert watched.after(1)[-1].noticed
    assert len(watched.marks) == 3
    aws.action, aws.rebalance = None, None
    assert watched.after(1)[-1] == NOTHING


def test_gcp() -> None:
    with serve(GcpMetadata()) as cloud:
        source = Gcp({"GCE_METADATA_HOST": cloud.address.removeprefix("http://")}, timeout_seconds=0.5, wait_seconds=1)
        watched = Watched(source)
        assert watched.after(1) == [NOTHING]
        cloud.change(maintenance="MIGRATE_ON_HOST_MAINTENANCE")
        assert watched.after(1)[-1].reason == "AtRisk"
        cloud.change(maintenance="NONE", preempted="TRUE")
        assert watched.after(1)[-1] == Mark(noticed=True, reason="Reclaim", message="Google Cloud takes this machine back.")
        cloud.change(preempted="FALSE", maintenance="TERMINATE_ON_HOST_MAINTENANCE")
        assert watched.after(1)[-1].noticed
        cloud.change(maintenance="NONE")
        assert watched.after(1)[-1] == NOTHING


@pytest.mark.parametrize(
    ("kind", "seconds", "reason"),
    [
        ("Preempt", 30, "Reclaim"),
        ("Terminate", 300, "Planned"),
        ("Reboot", 900, "Planned"),
        ("Redeploy", 60, "Reclaim"),
        ("Freeze", 900, "NoNotice"),
    ],
)
def test_azure(kind: str, seconds: float, reason: str) -> None:
    with serve(AzureMetadata()) as cloud:
        watched = Watched(Azure({}, address=cloud.address, timeout_seconds=0.5))
        cloud.events = [cloud.event("Preempt", 30, EventId="of another", Resources=["spot_1"]), cloud.event(kind, seconds)]
        assert watched.after(1)[-1].reason == reason
        cloud.events = [cloud.event(kind, seconds, EventStatus="Started", NotBefore="")]
        assert watched.after(1)[-1].noticed == (kind != "Freeze")
        cloud.events = []
        assert watched.after(1)[-1] == NOTHING
        assert cloud.approved == [], "whether the workers have left is not for an agent to know"


# --- Writing --------------------------------------------------------------------------------------------------------------------


class Server:
    """An API server that can be away."""

    def __init__(self) -> None:
        self.away = threading.Event()
        self.tries = 0
        self.written: list[Mark] = []
        self.lines: list[str] = []
        self.marker = Marker(self._write, self.lines.append, retry_seconds=0.05)
        self.marker.start()

    def _write(self, mark: Mark) -> None:
        self.tries += 1
        if self.away.is_set():
            raise NodeError("GET https://api failed: ConnectionRefusedError")
        self.written.append(mark)


NEAR = reclaim.notice("Reclaim", "It goes", NOW)


def test_a_mark_is_written_as_soon_as_the_api_server_is_back() -> None:
    server = Server()
    server.away.set()
    server.marker.want(NEAR)
    until("written", lambda: server.tries >= 3)
    assert server.written == []
    server.away.clear()
    until("written", lambda: server.written == [NEAR])
    until("written", lambda: server.lines[1:] == ["the Node is written again"])
    assert "cannot write to the Node: NodeError: GET https://api failed: ConnectionRefusedError; trying on" in server.lines


def test_a_notice_that_is_withdrawn_while_the_api_server_is_away_is_never_written() -> None:
    server = Server()
    server.marker.want(NOTHING)
    until("written", lambda: server.written == [NOTHING])
    server.away.set()
    server.marker.want(NEAR)
    until("written", lambda: server.tries >= 3)
    server.marker.want(NOTHING)
    server.away.clear()
    until("written", lambda: len(server.written) == 2)
    assert server.written == [NOTHING, NOTHING], "half of the notice may have been written"


def test_what_is_written_is_not_written_again() -> None:
    server = Server()
    for _ in range(3):
        server.marker.want(NEAR)
        until("written", lambda: server.written == [NEAR])
    time.sleep(0.1)
    assert server.written == [NEAR]


def test_a_mistake_of_ours_does_not_end_the_writing() -> None:
    faults: list[Exception] = [KeyError("resourceVersion")]
    written: list[Mark] = []

    def write(mark: Mark) -> None:
        if faults:
            raise faults.pop()
        written.append(mark)

    lines: list[str] = []
    marker = Marker(write, lines.append, retry_seconds=0.01)
    marker.start()
    marker.want(NEAR)
    until("written", lambda: written == [NEAR])
    assert lines[0].startswith("cannot write to the Node: KeyError")
