"""The proof itself, in short: real launchers, ranks and gateway; two pods are killed. Its checker is tested in test_judge.py."""

import json

import pytest

from benchmarks.logs import __main__ as command
from benchmarks.logs.run import Figures, Settings


@pytest.mark.e2e
def test_every_line_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seconds=2", "--rate=300", "--no-cost"]) == command.KEPT
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["broken"] == []
    assert figures["pods_lost"] == 2
    assert min(figures["lines_printed"], figures["lines_followed"]) >= figures["lines_acknowledged"] > 500


def test_a_broken_promise_is_an_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async def broken(_: Settings) -> tuple[Figures, list[str]]:
        return {"pods_lost": 2}, ["ebb logs: 1 acknowledged lines are missing"]

    monkeypatch.setattr(command, "run", broken)
    assert command.main([]) == command.BROKEN
    *_, said, last = capsys.readouterr().out.splitlines()
    assert "BROKEN: ebb logs: 1 acknowledged lines are missing; its files: " in said
    assert json.loads(last) == {"pods_lost": 2, "broken": ["ebb logs: 1 acknowledged lines are missing"]}
