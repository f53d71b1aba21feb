"""The time at which a run of the tests begins no more of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = "tests/testing/test_ports.py"


def outcome(under_a_test: bool) -> str:
    """The last line of pytest where the time was up long ago."""
    environment = {**os.environ, "EBB_TESTS_UNTIL": "1", "PYTEST_ADDOPTS": ""}
    if not under_a_test:
        del environment["PYTEST_CURRENT_TEST"]
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", SMALL]
    done = subprocess.run(
        words, cwd=Path(__file__).parents[1], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("under_a_test", [False, True], ids=["of-its-own", "under-a-test"])
def test_a_run_begins_nothing_more_when_its_time_is_up_and_one_of_a_test_goes_whole(under_a_test: bool) -> None:
    last = outcome(under_a_test)
    assert ("skipped" in last, "passed" in last) == (not under_a_test, under_a_test)
