"""The benchmark itself: what it plays in which order, its verdict, Ctrl-C; and jobs of ours and of torchrun, played for real."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.exact import processes
from benchmarks.exact.machines import until
from benchmarks.goodput import __main__ as bench
from benchmarks.goodput.account import Happened, Window
from benchmarks.goodput.play import JOIN, KINDS, Played
from benchmarks.recovery.play import FailedError
from benchmarks.recovery.systems import SYSTEMS, System
from benchmarks.recovery.timeline import Line
from devcluster.settings import CHECKOUT
from testing.exactness import Verdict

EXACT = Verdict(samples_lost=0, samples_repeated=0, steps=1, steps_redone=0, generations=1, samples=24)
LINES = [Line(time=number / 10, incarnation="1", world_size=3, first=24 * number, end=24 * number + 24) for number in range(1000)]


def played(steps: int = 1000, ledger: Verdict | None = EXACT, reasons: tuple[str, ...] = ()) -> Played:
    """Ten seconds before the first event, and so many steps of the 900 after it."""
    return Played(
        lines=LINES[: 100 + steps],
        happened=[Happened(name="notice", time=10.0)],
        window=Window(reference=0.0, began=9.95, ended=99.95),
        pids_kept=2,
        pids_lost=0,
        loads=[1.0],
        reasons=list(reasons),
        ended_early=bool(reasons),
        ledger=ledger,
    )


class Stand:
    """In the place of Play: `found` says what each system comes to."""

    found: dict[str, Played | FailedError]
    order: list[str]

    def __init__(self, system: Any, **_: Any) -> None:
        self._name = system.name

    def run(self) -> Played:
        type(self).order.append(self._name)
        answer = type(self).found[self._name]
        if isinstance(answer, FailedError):
            raise answer
        return answer


def measure(monkeypatch: pytest.MonkeyPatch, folder: Path, found: dict[str, Played | FailedError], *more: str) -> bench.Run:
    """With c10d as the stock ones: it needs no etcd. Ours gets none either."""
    monkeypatch.setattr(bench, "Play", type("Stood", (Stand,), {"found": found, "order": []}))
    monkeypatch.setitem(SYSTEMS, bench.OURS, System(name=bench.OURS, title="ours", backend="c10d"))
    run = bench.Run(bench.read_settings(["--only", ",".join(found), *more]), folder)
    run.measure()
    return run


def order() -> list[str]:
    return bench.Play.order  # type: ignore[attr-defined,no-any-return]


def test_the_last_line_has_the_figures_of_each_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ended = "the job ended after 45 s"
    found: dict[str, Played | FailedError] = {"ours": played(891), "c10d": played(450, None, (ended,))}
    run = measure(monkeypatch, tmp_path, found)
    assert run.reasons == {"c10d": [ended]}
    ours, stock = run.table["ours"], run.table["c10d"]
    assert ours == {
        "goodput": 0.99,
        "steps": 891,
        "ideal_steps": 900.0,
        "seconds": 90.0,
        "seconds_lost": 0.9,
        "seconds_without_step": 0.9,
        "steps_redone": 0,
        "step_seconds": 0.1,
        "ended_early": False,
        "events": {"notice": {"count": 1, "median_seconds": 0.85, "largest_seconds": 0.85}},
        "pids_kept": 2,
        "pids_lost": 0,
        "load": 1.0,
        "samples_lost": 0,
        "samples_repeated": 0,
        "exact": True,
    }
    assert stock is not None
    assert (stock["goodput"], stock["seconds_lost"], stock["ended_early"]) == (0.5, 45.0, True)
    assert "samples_lost" not in stock
    assert bench.table_lines(run)[0].startswith("ours: goodput 99.0 %, 891 of 900 steps, 0 redone;")
    assert bench.table_lines(run)[-1] == f"c10d: {ended}"


LOST = Verdict(samples_lost=1, samples_repeated=0, steps=1, steps_redone=0, generations=1, samples=24)
REPEATED = Verdict(samples_lost=0, samples_repeated=1, steps=1, steps_redone=0, generations=1, samples=24)


@pytest.mark.parametrize(
    ("found", "status"),
    [
        pytest.param({"ours": played(874)}, bench.KEPT, id="enough"),
        pytest.param({"ours": played(872)}, bench.BROKEN, id="too-little"),
        pytest.param({"ours": played(ledger=LOST)}, bench.BROKEN, id="a-sample-lost"),
        pytest.param({"ours": played(ledger=REPEATED)}, bench.BROKEN, id="a-sample-repeated"),
        pytest.param({"ours": played(ledger=None)}, bench.BROKEN, id="a-ledger-that-cannot-be-judged"),
        pytest.param({"ours": played(), "c10d": played(9, None)}, bench.KEPT, id="stock-is-not-judged"),
        pytest.param({"ours": FailedError("it did not come up")}, bench.FAILED, id="ours-not-measured"),
        pytest.param({"ours": played(), "c10d": FailedError("no")}, bench.FAILED, id="another-not-measured"),
        pytest.param({"ours": played(9), "c10d": FailedError("no")}, bench.BROKEN, id="broken-comes-first"),
    ],
)
def test_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: dict[str, Played | FailedError], status: int
) -> None:
    assert bench.judge(measure(monkeypatch, tmp_path, found)) == status


def test_a_system_that_does_not_come_up_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = measure(monkeypatch, tmp_path, {"c10d": FailedError("three machines did not train together"), "ours": played()})
    assert run.table["c10d"] is None
    assert run.table["ours"] is not None
    assert run.reasons == {"c10d": ["three machines did not train together"]}


def test_ours_is_alone_when_the_others_play_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found: dict[str, Played | FailedError] = {"c10d": played(), "ours": played(), "c10d_best": played()}
    measure(monkeypatch, tmp_path, found)
    assert order() == ["c10d", "ours", "c10d_best"]
    measure(monkeypatch, tmp_path, found, "--at-once")
    assert order()[0] == "ours"
    assert sorted(order()[1:]) == ["c10d", "c10d_best"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--only", "ours,horovod"], "--only 'horovod' is none of ours, restart, "),
        (["--every", "5"], "--every 5 must be at least 10"),
        (["--minutes", "0.5"], "--minutes 0.5 is shorter than --every 60 s"),
        (["--state-megabytes", "0"], "--state-megabytes 0 must be positive"),
    ],
)
def test_wrong_options_are_named(capsys: pytest.CaptureFixture[str], asked: list[str], told: str) -> None:
    with pytest.raises(SystemExit) as error:
        bench.read_settings(asked)
    assert error.value.code == bench.FAILED
    assert told in capsys.readouterr().err


@pytest.mark.proof
def test_goodput_of_ours(tmp_path: Path) -> None:
    """Each kind of event once; the books, not the speed."""
    run = bench.Run(bench.read_settings(["--only", "ours", "--minutes", "1.25", "--every", "15"]), tmp_path)
    run.measure()
    ours = run.table["ours"]
    assert ours is not None
    assert {name: one["count"] for name, one in ours["events"].items()} == {**dict.fromkeys(KINDS, 1), JOIN: 3}
    assert (ours["exact"], ours["samples_lost"], ours["samples_repeated"]) == (True, 0, 0)
    assert not ours["ended_early"]
    assert ours["ideal_steps"] * ours["step_seconds"] == pytest.approx(75, rel=0.01)
    assert ours["goodput"] == pytest.approx(ours["steps"] / ours["ideal_steps"], abs=1e-4)
    assert ours["seconds_lost"] == pytest.approx(75 * (1 - ours["goodput"]), abs=0.2)
    assert 0 < ours["seconds_without_step"] <= 75
    if not any("new machines were still starting" in reason for reason in run.reasons.get("ours", [])):
        # else the machine is so busy that a start takes longer than 15 s, and somebody has to begin from a checkpoint
        assert [reason for reason in run.reasons.get("ours", []) if "too busy" not in reason] == []
        assert ours["pids_lost"] == 0
        assert ours["pids_kept"] >= 8  # one or more at each of the eight changes
        assert 0 <= ours["steps_redone"] <= 4  # the step under way, at each kill
    done = [json.loads(line) for line in (tmp_path / "ours" / "output" / "metrics.jsonl").read_text().splitlines()]
    # The job's own count of its steps: in its last 75 s, and not before
    ended = done[-1]["time"]
    counted = done[-1]["step"] - max(line["step"] for line in done if line["time"] <= ended - 75)
    assert ours["steps"] == pytest.approx(counted, abs=30)  # it went on for a moment after the end


@pytest.mark.proof
def test_a_torchrun_job_that_ends_makes_no_more_steps(tmp_path: Path) -> None:
    """c10d does not survive that a machine leaves with notice; it is not waited for until the end."""
    run = bench.Run(bench.read_settings(["--only", "c10d_best", "--minutes", "3", "--every", "10"]), tmp_path)
    run.measure()
    stock = run.table["c10d_best"]
    assert stock is not None
    assert stock["ended_early"]
    assert stock["goodput"] < 0.5
    assert stock["seconds"] == 180
    (*_, reason) = run.reasons["c10d_best"]
    assert reason.startswith("the job ended after ")
    assert sum(one["count"] for one in stock["events"].values()) < 20  # of 29


@pytest.mark.e2e
def test_nothing_is_left_after_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.goodput", "--only", "c10d_best", "--every", "10"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, text=True) as bench_process:
        assert bench_process.stdout is not None
        for line in bench_process.stdout:
            if "machines train" in line:
                break
        started = processes.family(bench_process.pid)[1:]
        assert len(started) >= 6  # three launchers and their workers
        bench_process.send_signal(signal.SIGINT)
        rest = bench_process.stdout.read()
    assert bench_process.returncode == bench.INTERRUPTED
    assert rest.rstrip().endswith("interrupted")
    assert list(tmp_path.iterdir()) == []
    assert until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), 10)
