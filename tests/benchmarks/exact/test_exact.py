"""The short form of the proof: one history by restarts, and three in memory, with virtual workers, and with new launchers."""

import json

import pytest

from benchmarks.exact.__main__ import KEPT, main

pytestmark = pytest.mark.e2e


def test_a_handful_of_histories(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--seed", "6", "--histories", "4", "--agents", "1"])
    told = capsys.readouterr().out
    assert status == KEPT, told
    figures = json.loads(told.splitlines()[-1])
    assert (figures["histories"], figures["agent_histories"], figures["broken"]) == (4, 1, [])
    assert (figures["samples_lost"], figures["samples_repeated"]) == (0, 0)
    assert figures["events"] >= 12
    assert figures["bit_identical"] == figures["virtual_histories"] == 1
    memory = figures["recovery"]["memory"]
    assert (memory["histories"], memory["agent_histories"], memory["bit_identical"]) == (3, 1, 1)
    assert memory["pids_lost"] == 0
    assert memory["pids_kept"] >= 5
    assert figures["recovery"]["restart"]["histories"] == 1
