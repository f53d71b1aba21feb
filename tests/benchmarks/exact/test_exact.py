"""The short form of the proof: a handful of histories, one with virtual workers, and one on launchers from nothing."""

import json

import pytest

from benchmarks.exact.__main__ import KEPT, main

pytestmark = pytest.mark.e2e


def test_a_handful_of_histories(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--seed", "6", "--histories", "5", "--agents", "1"])
    told = capsys.readouterr().out
    assert status == KEPT, told
    figures = json.loads(told.splitlines()[-1])
    assert (figures["histories"], figures["agent_histories"], figures["broken"]) == (5, 1, [])
    assert (figures["samples_lost"], figures["samples_repeated"]) == (0, 0)
    assert figures["events"] >= 15
    assert figures["bit_identical"] == figures["virtual_histories"] == 1
