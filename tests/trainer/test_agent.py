"""What the exit of a worker means, and when the launcher may be interrupted."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from trainer.agent import Judge, ProgramFailedError
from trainer.launch import Reclaim
from trainer.notice import Interrupted


@pytest.mark.parametrize(
    ("max_restarts", "exits", "ends_at"),
    [
        pytest.param(0, [{138}] * 50 + [{75}] * 50 + [{75, 138}], None, id="changes-of-membership-without-limit"),
        pytest.param(0, [{1}], 0, id="a-failure-ends-it"),
        pytest.param(0, [{138, 1}], 0, id="a-failure-beside-one-that-left"),
        pytest.param(2, [{1}, {138}, {1}, {1}], 3, id="restarts-allowed"),
        pytest.param(0, [{-9}, {75}, {-9}, {-11}, {-9}], 4, id="three-workers-killed"),
        pytest.param(0, [{-9, 1}], 0, id="killed-beside-a-failure"),
    ],
)
def test_judgement(max_restarts: int, exits: list[set[int]], ends_at: int | None) -> None:
    judge = Judge(max_restarts=max_restarts, say=lambda _: None)
    ended = None
    for number, codes in enumerate(exits):
        try:
            judge.judge(codes)
        except ProgramFailedError:
            ended = number
            break
    assert ended == ends_at


@pytest.fixture
def reclaim() -> Iterator[Reclaim]:
    before = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT)]
    yield Reclaim()
    for number, handler in before:
        signal.signal(number, handler)


def test_while_starting_a_notice_interrupts(reclaim: Reclaim) -> None:
    with pytest.raises(Interrupted):
        os.kill(os.getpid(), signal.SIGTERM)
    assert reclaim.seen


def test_while_workers_run_a_notice_is_only_noted_and_the_next_wait_is_interrupted(reclaim: Reclaim) -> None:
    with reclaim.waiting():
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    assert reclaim.seen
    with pytest.raises(Interrupted), reclaim.waiting():
        pytest.fail("must not wait for others after a notice")


@pytest.mark.parametrize("arguments", [[], ["--help"]], ids=["nothing", "help"])
def test_without_arguments_it_teaches(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainer.launch", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0
    assert "python -m trainer.launch --standalone" in done.stdout
    assert "--nproc-per-node" in done.stdout
