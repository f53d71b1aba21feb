"""The image's torch: too old, old enough to lack something, or as it should be; and what is asked of any of them."""

import os
import signal
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from ebb.elastic.contract import EXIT_NO_PROGRAM
from ebb.elastic.launch import node_agent
from ebb.elastic.launch.torch_version import accepted, keep_signal_handlers


def test_the_launcher_ends_before_it_starts_anything(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ})
    monkeypatch.setattr(node_agent, "find_version", lambda: "2.0.1")
    monkeypatch.setattr(node_agent, "_take_part", lambda *_: pytest.fail("it went on"))
    assert node_agent.launch(["train.py"], None, None) == EXIT_NO_PROGRAM  # type: ignore[arg-type]
    assert "the image's torch is 2.0.1" in capsys.readouterr().err


def test_a_limit_is_the_first_line_and_the_launcher_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ})
    monkeypatch.setattr(node_agent, "find_version", lambda: "2.6.0")
    monkeypatch.setattr(node_agent, "_take_part", lambda *_: 5)
    assert node_agent.launch(["train.py"], None, None) == 5  # type: ignore[arg-type]
    assert "torch 2.6.0 is older than 2.9, so what --compile" in capsys.readouterr().err.splitlines()[0]


def test_options_that_this_torch_does_not_know_are_left_out() -> None:
    def older(role: str, max_restarts: int = 3) -> None: ...

    assert accepted(older, max_restarts=5, numa_options=None) == {"max_restarts": 5}


@pytest.fixture
def handlers() -> Iterator[list[int]]:
    """Numbers of the signals that our own handler heard; all handlers are as before afterwards."""
    heard: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)}
    signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield heard
    for number, handler in before.items():
        signal.signal(number, handler)


def test_torchs_own_start_leaves_our_handlers_in_place(handlers: list[int]) -> None:
    quit_: list[int] = []
    module = SimpleNamespace(_terminate_process_handler=lambda number, _: quit_.append(number))
    keep_signal_handlers(module)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):  # as torch 2.4 does when it starts workers
        signal.signal(number, module._terminate_process_handler)
        os.kill(os.getpid(), number)
    assert handlers == [signal.SIGTERM]
    assert quit_ == [signal.SIGQUIT]  # torch's business
