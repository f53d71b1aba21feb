"""What an announcement does to the workers, and what a service that misbehaves does: a line in the log."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from ebb.elastic.notices.relay import Relay
from ebb.elastic.notices.watcher import Watcher, interrupt_main_thread
from ebb.metadata.announcement import Announcement
from ebb.metadata.aws import Aws
from ebb.metadata.azure import Azure
from ebb.metadata.service import MetadataError, MetadataRefused
from tests.elastic.machines import until
from tests.metadata.clouds import AwsMetadata, AzureMetadata, Fake, Reply, serve

NOW = 5000.0
Said = Announcement | None | Exception


class Script:
    """A source that says one thing after the other, the last for ever."""

    name = "Cloud"
    poll_seconds = 5.0
    retry_seconds = 15.0

    def __init__(self, *says: Said, left: str | Exception | None = None) -> None:
        self._says, self._left = list(says), left

    def look(self) -> Announcement | None:
        said = self._says.pop(0) if len(self._says) > 1 else self._says[0]
        if isinstance(said, Exception):
            raise said
        return said

    def left(self) -> str | None:
        if isinstance(self._left, Exception):
            raise self._left
        return self._left


def reclaim(seconds_left: float | None, key: str = "k") -> Announcement:
    return Announcement(key=key, text="The cloud takes it", reclaim=True, seconds_left=seconds_left)


def risk(key: str) -> Announcement:
    return Announcement(key=key, text="The cloud may take it", reclaim=False)


class Launcher:
    """What the watcher does to it."""

    def __init__(self, folder: Path, source: Script) -> None:
        folder.mkdir(exist_ok=True)
        self.relay = Relay(folder)
        self.lines: list[str] = []
        self.interrupts = 0
        self.watcher = Watcher(source, self.relay, interrupt=self._interrupt, say=self.lines.append, clock=lambda: NOW)

    def _interrupt(self) -> None:
        assert self.relay.deadline() is not None or "within" not in self.lines[-1]  # the workers must find it
        self.interrupts += 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "relay"


def test_a_reclaim_is_a_sigterm_with_a_deadline(folder: Path) -> None:
    launcher = Launcher(folder, Script(None, reclaim(118)))
    launcher.watcher.look()
    assert (launcher.interrupts, launcher.relay.deadline(), launcher.lines) == (0, None, [])
    launcher.watcher.look()
    assert (launcher.interrupts, launcher.relay.deadline(), launcher.relay.wishes()) == (1, NOW + 118, 0)
    assert launcher.lines == ["The cloud takes it: the workers save and leave within 118 s"]


@pytest.mark.parametrize(("seconds_left", "deadline"), [(None, None), (-30.0, NOW), (0.0, NOW)])
def test_a_reclaim_without_time_is_one_too(folder: Path, seconds_left: float | None, deadline: float | None) -> None:
    launcher = Launcher(folder, Script(reclaim(seconds_left)))
    launcher.watcher.look()
    assert (launcher.interrupts, launcher.relay.deadline()) == (1, deadline)


def test_a_deadline_that_cannot_be_written_down_does_not_cost_the_notice(folder: Path) -> None:
    launcher = Launcher(folder, Script(reclaim(60)))
    folder.rmdir()
    interrupted = threading.Event()
    Watcher(Script(reclaim(60)), launcher.relay, interrupt=interrupted.set, say=no_log).look()
    assert interrupted.is_set()


def no_log(_text: str) -> None:
    raise BrokenPipeError


def test_a_risk_is_one_checkpoint_and_no_interrupt(folder: Path) -> None:
    launcher = Launcher(folder, Script(risk("a"), risk("a"), risk("b"), risk("b")))
    for _ in range(4):
        launcher.watcher.look()
    assert (launcher.interrupts, launcher.relay.wishes(), launcher.relay.deadline()) == (0, 2, None)
    assert launcher.lines == ["The cloud may take it: the workers make a checkpoint soon and stay"] * 2


def test_a_reclaim_far_ahead_is_a_risk_until_two_minutes_before(folder: Path) -> None:
    launcher = Launcher(folder, Script(reclaim(600), reclaim(590), reclaim(120.5), reclaim(119.5)))
    for expected in (0, 0, 0, 1):
        launcher.watcher.look()
        assert launcher.interrupts == expected
    assert (launcher.relay.wishes(), launcher.relay.deadline()) == (1, NOW + 119.5)
    assert "they leave 120 s before" in launcher.lines[0]


def test_a_far_reclaim_that_is_withdrawn_never_interrupts(folder: Path) -> None:
    launcher = Launcher(folder, Script(reclaim(600), None))
    for _ in range(5):
        launcher.watcher.look()
    assert launcher.interrupts == 0


def test_errors_are_said_once_and_their_end_too(folder: Path) -> None:
    error = MetadataError("it is away")
    launcher = Launcher(folder, Script(None, *[error] * 6, None))
    pauses = [launcher.watcher.look() for _ in range(8)]
    assert pauses == [5, 5, 10, 15, 15, 15, 15, 5]
    assert launcher.lines == [
        "cannot hear notices of Cloud: it is away; asking goes on",
        "Cloud answers again",
    ]


def test_one_error_is_not_worth_a_line(folder: Path) -> None:
    launcher = Launcher(folder, Script(MetadataError("x"), None, MetadataError("x"), None))
    for _ in range(4):
        launcher.watcher.look()
    assert launcher.lines == []


def test_a_service_that_never_answered_is_asked_once_a_minute(folder: Path) -> None:
    launcher = Launcher(folder, Script(MetadataError("nobody")))
    pauses = [launcher.watcher.look() for _ in range(20)]
    assert pauses[11:13] == [15, 60]
    assert len(launcher.lines) == 1


@pytest.mark.parametrize(("asked", "pause"), [(None, 5), (1.0, 5), (8.0, 8), (3600.0, 15)])
def test_a_pause_that_the_service_asks_for(folder: Path, asked: float | None, pause: float) -> None:
    launcher = Launcher(folder, Script(MetadataRefused("429", status=429, retry_seconds=asked)))
    assert launcher.watcher.look() == pause


@pytest.mark.parametrize(("told", "line"), [("told it", "told it"), (None, None), (MetadataError("away"), "could not be told")])
def test_the_cloud_is_told_once_the_workers_have_left(folder: Path, told: str | Exception | None, line: str | None) -> None:
    launcher = Launcher(folder, Script(None, left=told))
    launcher.watcher.left()
    assert bool(launcher.lines) == (line is not None)
    assert line is None or line in launcher.lines[0]


def test_a_mistake_of_a_source_does_not_end_the_thread(folder: Path) -> None:
    source = Script(ZeroDivisionError("a mistake of ours"), reclaim(30))
    source.retry_seconds = 0.01
    launcher = Launcher(folder, source)
    launcher.watcher.start()
    until("the interrupt", lambda: launcher.interrupts, 10)
    assert "ZeroDivisionError: a mistake of ours" in launcher.lines[1]
    until("the end of the thread", lambda: not [each for each in threading.enumerate() if each.name == "notices"], 10)


def test_the_interrupt_is_a_sigterm_of_the_main_thread() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: heard.append(number))
    try:
        thread = threading.Thread(target=interrupt_main_thread)
        thread.start()
        thread.join()
        until("the signal", lambda: heard, 10)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


def test_an_aws_machine_from_peace_to_reclaim(folder: Path) -> None:
    with serve(AwsMetadata()) as cloud:
        source = Aws({"AWS_EC2_METADATA_SERVICE_ENDPOINT": cloud.address}, timeout_seconds=0.2)
        source.poll_seconds = source.retry_seconds = 0.02
        folder.mkdir()
        relay, lines, interrupted = Relay(folder), list[str](), threading.Event()
        watcher = Watcher(source, relay, interrupt=interrupted.set, say=lines.append)
        cloud.next_replies = [Fake.HANG, Reply(503), Reply(503), Fake.DRIP]
        watcher.start()
        until("peace", lambda: cloud.tokens and len(cloud.asked) > 10)
        cloud.rebalance = {"noticeTime": cloud.stamp(0)}
        until("the wish", lambda: relay.wishes() == 1)
        cloud.expire_token()
        cloud.action = {"action": "terminate", "time": cloud.stamp(100)}
        assert interrupted.wait(30)
        assert (relay.deadline() or 0) - time.monotonic() == pytest.approx(100, abs=5)
        assert (relay.wishes(), len(lines)) == (1, 5)


def test_an_azure_machine_is_approved_only_after_the_workers_have_left(folder: Path) -> None:
    with serve(AzureMetadata()) as cloud:
        folder.mkdir()
        source = Azure({}, address=cloud.address)
        source.poll_seconds = 0.02
        interrupted, lines = threading.Event(), list[str]()
        watcher = Watcher(source, Relay(folder), interrupt=interrupted.set, say=lines.append)
        watcher.start()
        until("peace", lambda: len(cloud.asked) > 3)
        cloud.events = [cloud.event("Preempt", 30)]
        assert interrupted.wait(30)
        assert cloud.approved == []
        watcher.left()
        assert cloud.approved == ["Preempt-1"]
        assert lines[-1] == "told Azure that its event Preempt-1 may begin"


def test_a_machine_that_is_not_taken_is_watched_in_silence(folder: Path) -> None:
    with serve(AwsMetadata()) as cloud:
        source = Aws({"AWS_EC2_METADATA_SERVICE_ENDPOINT": cloud.address})
        source.poll_seconds = 0.01
        folder.mkdir()
        lines: list[str] = []
        watcher = Watcher(source, Relay(folder), interrupt=os.abort, say=lines.append)
        watcher.start()
        until("many looks", lambda: len(cloud.asked) > 100)
        watcher.stop()
        assert lines == ["listening for notices of AWS"]
