"""The benchmark of the command line: whole processes in turns, and a promise that can be broken."""

import sys
from pathlib import Path

import pytest

from benchmarks.cli.__main__ import HELP_TIMES, PROMISES, read_settings
from benchmarks.cli.measure import in_turns, middle, output
from benchmarks.cli.plane import CRD, job, platform_map, status
from benchmarks.controller.figures import judge
from benchmarks.controller.processes import BenchmarkError
from ebb.api.platform import parse
from ebb.api.spec import Job
from ebb.client.jobs.view import view

PYTHON = sys.executable


async def test_commands_run_in_turns_and_the_first_round_does_not_count(tmp_path: Path) -> None:
    log = tmp_path / "log"
    note = "import pathlib, sys; pathlib.Path(sys.argv[1]).open('a').write(sys.argv[2])"
    commands = {name: [PYTHON, "-c", note, str(log), name] for name in ("a", "b")}
    took = await in_turns(commands, 2, folder=tmp_path)
    assert log.read_text() == "ababab"
    assert {name: len(times) for name, times in took.items()} == {"a": 2, "b": 2}
    assert all(0 < seconds < 30 for times in took.values() for seconds in times)


async def test_a_command_that_fails_is_no_measurement(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"ended with 3: no such job"):
        await in_turns({"a": [PYTHON, "-c", "import sys; print('no such job'); sys.exit(3)"]}, 1, folder=tmp_path)
    with pytest.raises(BenchmarkError, match="ended with 1"):
        await output([PYTHON, "-c", "1/0"])


def test_the_median_is_the_middle() -> None:
    assert middle([0.5, 0.1, 0.30049]) == 0.3


def test_the_promise_can_be_broken() -> None:
    kept, broken = (judge({"help_times": times}, PROMISES)[0].kept for times in (HELP_TIMES, HELP_TIMES + 0.01))
    assert (kept, broken) == (True, False)
    assert judge({}, PROMISES)[0].kept is None


def test_the_jobs_are_jobs() -> None:
    made = {**job(7), "status": status(7)}
    made["metadata"] |= {"namespace": "elastic-job", "uid": "u", "creationTimestamp": "2026-11-21T12:00:00Z"}
    assert Job.of(made).worker.replicas == 4
    found = view(made)
    assert (found.state, found.workers, found.step, found.reclaims, len(found.history)) == ("running", 4, 1007, 22, 20)
    assert parse(platform_map()["data"]).jobs_namespace == "elastic-job"
    assert CRD.is_file()


@pytest.mark.parametrize("words", [["--jobs", "0"], ["--rounds", "0"], ["--only", "lunch"]], ids=" ".join)
def test_bad_settings_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_settings(words)
    assert ended.value.code == 2
