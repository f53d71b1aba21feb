"""How the proof of the rendezvous counts, and what it does not let pass."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rendezvous import __main__ as proof

REPORT = """<testsuites><testsuite>
<testcase classname="a" name="test_join[3.5]"/><testcase classname="a" name="test_join[3.6]"><failure>x</failure></testcase>
<testcase classname="a" name="test_join[3.7]"><skipped/></testcase><testcase classname="a" name="test_tls[client-3.6]"/>
<testcase classname="a" name="test_rules[a-last-call]"/><testcase classname="a" name="test_setup[3.7]"><error/></testcase>
</testsuite></testsuites>"""


def endured(keys: int = 3, grown: tuple[str, ...] = ()) -> dict[str, Any]:
    sizes = {"threads": 6, "descriptors": 20, "megabytes": 200.0, "etcd_megabytes": 60.0}
    after = {**sizes, "keys": keys, "megabytes": 201.5}
    return {"generations": 100, "seconds": 2.5, "before": {**sizes, "keys": 3}, "after": after, "grown": list(grown)}


def changed(grown: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"changes": 1000, "seconds": 60.0, "grown": list(grown)}


GATHERED = {
    "members": 64,
    "start_seconds": 9.0,
    "form_seconds": 3.5,
    "lost": 20,
    "survive_seconds": 2.5,
    "load": 1.0,
    "generations": 1,
    "version": "3.6",
}


def settings(*versions: str) -> proof.Settings:
    return proof.Settings(versions=versions, generations=100, changes=1000, members=64, lost=20, scenarios="")


def test_counts(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    found = proof.outcomes(tmp_path / "report.xml", ["3.5", "3.6", "3.7"])
    every = ("3.5", "3.6", "3.7")
    told = proof.verdict(found, dict.fromkeys(every, endured()), dict.fromkeys(every, changed()), dict.fromkeys(every, GATHERED))
    assert told["passed"] == {"3.5": 1, "3.6": 1, "3.7": 0, "no etcd": 1}
    assert told["failed"] == {"3.5": 0, "3.6": 1, "3.7": 2, "no etcd": 0}, "what was skipped has shown nothing"
    assert told["failures"] == ["3.6: test_join[3.6]", "3.7: test_setup[3.7]", "3.7: test_join[3.7]"]
    assert told["keys_at_end"] == {"3.5": 3, "3.6": 3, "3.7": 3}
    assert told["megabytes_grown"]["3.5"] == 1.5
    assert told["milliseconds_per_generation"]["3.5"] == 25.0
    assert (told["changes"]["3.7"], told["milliseconds_per_change"]["3.7"]) == (1000, 60.0)
    wanted = ("members", "start_seconds", "form_seconds", "lost", "survive_seconds", "load")
    assert told["members"]["3.5"] == {name: GATHERED[name] for name in wanted}


@pytest.mark.parametrize(
    ("report", "endurance", "expected"),
    [
        pytest.param("<t><testcase name='a[3.6]'/></t>", {"3.6": endured()}, True, id="kept"),
        pytest.param("<t><testcase name='a[3.6]'><failure/></testcase></t>", {"3.6": endured()}, False, id="failed"),
        pytest.param("<t><testcase name='a[3.6]'/></t>", {"3.6": endured(4, ("keys: 4",))}, False, id="grown"),
        pytest.param("<t><testcase name='a[3.6]'/></t>", {}, False, id="generations-broke"),
        pytest.param("<t><testcase name='a'/></t>", {"3.6": endured()}, False, id="no-scenario-on-this-etcd"),
    ],
)
def test_what_is_kept(report: str, endurance: dict[str, Any], expected: bool, tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(report)
    told = proof.verdict(proof.outcomes(tmp_path / "report.xml", ["3.6"]), endurance, {"3.6": changed()}, {"3.6": GATHERED})
    assert proof.is_kept(told, settings("3.6")) is expected


@pytest.mark.parametrize(
    ("changes", "members"),
    [
        pytest.param({"3.6": changed(("worker: 9 threads",))}, {"3.6": GATHERED}, id="grown-by-changes"),
        pytest.param({}, {"3.6": GATHERED}, id="changes-broke"),
        pytest.param({"3.6": changed()}, {}, id="members-did-not-meet"),
    ],
)
def test_changes_and_members_count_too(changes: dict[str, Any], members: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text("<t><testcase name='a[3.6]'/></t>")
    told = proof.verdict(proof.outcomes(tmp_path / "report.xml", ["3.6"]), {"3.6": endured()}, changes, members)
    assert not proof.is_kept(told, settings("3.6"))


def test_which_scenarios() -> None:
    every = proof.scenarios(proof.read_settings([]), Path("r"))
    assert "-k" not in every
    some = proof.scenarios(proof.read_settings(["--versions=3.6", "--scenarios=leave or join"]), Path("r"))
    assert some[some.index("-k") + 1] == "not 3.5 and not 3.7 and (leave or join)"
    assert proof._environment()["EBB_EVERY_ETCD"], "tests/elastic/rendezvous/conftest.py has one version without it"


@pytest.mark.parametrize("arguments", [["--versions=3.4"], ["--generations=5"], ["--changes=5"], ["--lost=64"]])
def test_what_shows_nothing_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        proof.read_settings(arguments)


@pytest.mark.e2e
def test_a_small_one() -> None:
    command = ["--versions=3.6", "--generations=50", "--scenarios=join_grow_leave or two_is_dead"]
    command += ["--changes=20", "--members=8", "--lost=3"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.rendezvous", *command], capture_output=True, text=True, timeout=180, check=False
    )
    told = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert (told["passed"], told["failures"]) == ({"3.6": 1, "no etcd": 1}, [])
    assert (told["generations"], told["keys_at_end"], told["kept"]) == ({"3.6": 50}, {"3.6": 3}, True)
    assert (told["changes"], told["grown_by_changes"]) == ({"3.6": 20}, {})
    assert (told["members"]["3.6"]["members"], told["members"]["3.6"]["lost"]) == (8, 3)


def test_a_version_that_breaks_off_is_said_and_the_others_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "played.py").write_text(
        "import sys\nprint('on the way')\nif sys.argv[1] == '--version=3.6': sys.exit('no step')\nprint('{\"changes\": 5}')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert proof.side_by_side(["3.5", "3.6"], "played") == {"3.5": {"changes": 5}}
    assert "etcd 3.6 broke off with 1" in capsys.readouterr().out


def test_what_one_prints_does_not_hold_it_up_while_another_runs(tmp_path: Path) -> None:
    """The first of them ends when the second has printed more than a pipe holds."""
    found = proof.side_by_side(("3.5", "3.6"), "tests.benchmarks.rendezvous.talkative", f"--done={tmp_path / 'done'}")
    assert found == {"3.5": {"version": "3.5"}, "3.6": {"version": "3.6"}}
