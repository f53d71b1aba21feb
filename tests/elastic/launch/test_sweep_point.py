"""The point that a run chooses when it starts, and what it leaves for those after it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ebb.elastic.contract import ENV_OUTPUT_DIR, ENV_SWEEP_SEARCH
from ebb.elastic.launch import optuna_sampler, sweep_point
from ebb.elastic.launch.last_figures import find_metric
from ebb.elastic.launch.sweep_point import PointError, place, tell

AXES = [{"key": "lr", "low": 1e-4, "high": 1.0, "log": True}, {"key": "arch", "values": ["a", "b"]}]
WORDS = ["train.py", "--lr", "{lr}", "--arch={arch}"]


@pytest.fixture(autouse=True)
def _here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Optuna in this process: a second of import for each choice is not what these tests are about."""
    if request.node.get_closest_marker("e2e"):
        return

    class Done:
        def __init__(self, asked: str) -> None:
            self.stdout, self.stderr, self.returncode = json.dumps(optuna_sampler.suggest(json.loads(asked))), "", 0

    monkeypatch.setattr("ebb.elastic.launch.sweep_point.subprocess.run", lambda _, input, **__: Done(input))


def environment(folder: Path, number: int, **changes: Any) -> dict[str, str]:
    told = {"sampler": "tpe", "seed": 0, "metric": "loss", "mode": "min", "axes": AXES, **changes}
    output = folder / f"run-{number}"
    output.mkdir(exist_ok=True)
    search = json.dumps({**told, "study": str(folder / "study"), "number": number})
    return {ENV_SWEEP_SEARCH: search, ENV_OUTPUT_DIR: str(output)}


def finish(around: dict[str, str], said: list[str], **line: Any) -> None:
    (Path(around[ENV_OUTPUT_DIR]) / "metrics.jsonl").write_text(json.dumps({"step": 9, **line}) + "\n")
    tell(around, said.append)


def trial(folder: Path, number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "study" / f"{number:03}.json").read_text())
    return found


def test_a_job_of_no_search_is_as_it_was(tmp_path: Path) -> None:
    assert place(WORDS, {}, print) is WORDS
    tell({ENV_OUTPUT_DIR: str(tmp_path)}, print)
    assert list(tmp_path.iterdir()) == []


def test_a_run_has_one_point_however_often_it_starts(tmp_path: Path) -> None:
    said = list[str]()
    first = place(WORDS, environment(tmp_path, 1), said.append)
    point = trial(tmp_path, 1)["point"]
    assert first == ["train.py", "--lr", point["lr"], f"--arch={point['arch']}"]
    assert said == [f"point of run 1, by Optuna after 0 finished runs: lr={point['lr']} arch={point['arch']}"]
    assert place(WORDS, environment(tmp_path, 1), said.append) == first
    assert place(WORDS, environment(tmp_path, 2), said.append) != first
    assert not (tmp_path / "study" / "lock").exists()


def test_the_search_finds_what_it_looks_for(tmp_path: Path) -> None:
    """Thirty runs, three at a time; the best of Optuna's last ten is nearer than the best of its first ten, which are drawn."""
    said = list[str]()

    def loss(number: int) -> float:
        point = trial(tmp_path, number)["point"]
        return float(abs(float(point["lr"]) - 0.01) + (point["arch"] == "a"))

    for number in range(1, 31):
        around = environment(tmp_path, number)
        place(WORDS, around, said.append)
        if number > 3:
            finish(environment(tmp_path, number - 3), said, loss=loss(number - 3))
    assert "after 26 finished runs" in said[-1]
    drawn, chosen = [[loss(number) for number in numbers] for numbers in (range(1, 11), range(21, 31))]
    assert sum(chosen) / 10 < sum(drawn) / 20
    assert [trial(tmp_path, number)["point"]["arch"] for number in range(21, 31)].count("b") > 7


def test_the_same_seed_and_results_give_the_same_points(tmp_path: Path) -> None:
    def points(folder: Path, seed: int) -> list[Any]:
        folder.mkdir()
        for number in range(1, 15):
            around = environment(folder, number, seed=seed)
            place(WORDS, around, lambda _: None)
            finish(around, [], loss=float(trial(folder, number)["point"]["lr"]))
        return [trial(folder, number)["point"] for number in range(1, 15)]

    first = points(tmp_path / "a", 0)
    assert points(tmp_path / "b", 0) == first
    assert points(tmp_path / "c", 1) != first


def test_more_may_be_better(tmp_path: Path) -> None:
    asked = {"seed": 0, "number": 40, "mode": "max", "axes": [{"key": "n", "low": 1, "high": 100, "whole": True}]}
    trials = [{"number": n, "point": {"n": str(n * 3)}, "finished": True, "value": float(n)} for n in range(1, 31)]
    assert int(optuna_sampler.suggest({**asked, "trials": trials})["n"]) > 50
    assert int(optuna_sampler.suggest({**asked, "mode": "min", "trials": trials})["n"]) < 50


def test_a_run_without_a_number_counts_as_failed(tmp_path: Path) -> None:
    said = list[str]()
    around = environment(tmp_path, 1)
    place(WORDS, around, said.append)
    finish(around, said, loss=float("nan"))
    assert (trial(tmp_path, 1)["finished"], trial(tmp_path, 1)["value"]) == (True, None)
    assert said[-1] == "this run has no loss: the sweep learns nothing of it"
    place(WORDS, environment(tmp_path, 2), said.append)
    assert said[-1].startswith("point of run 2, by Optuna after 1 finished runs: ")


def test_a_negative_number_and_its_flag_are_one_word() -> None:
    words = sweep_point._words(["train.py", "--shift", "{x}", "-y", "{x}", "--go", "--", "x={x}", "--last"], {"x": "-0.5"})
    assert list(words) == ["train.py", "--shift=-0.5", "-y", "-0.5", "--go", "--", "x=-0.5", "--last"]
    assert list(sweep_point._words(["--a", "--b", "{x}"], {"x": "1"})) == ["--a", "--b", "1"]


FILES: dict[str, tuple[dict[str, str], str, float | None]] = {
    "the loss": ({"metrics.jsonl": '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n'}, "loss", 0.25),
    "the result first": ({"result.json": '{"acc": 0.9}', "validations.jsonl": '{"acc": 0.1}\n'}, "acc", 0.9),
    "the last validation that has it": ({"validations.jsonl": '{"acc": 0.1}\n{"acc": 0.2}\n{"top5": 1}\n{"ac'}, "acc", 0.2),
    "a figure": ({"metrics.jsonl": '{"step": 2, "figures": {"acc": 0.3}}\n'}, "acc", 0.3),
    "nowhere": ({"metrics.jsonl": '{"step": 2}\n'}, "acc", None),
    "no files": ({}, "loss", None),
    "no number": ({"result.json": '{"acc": NaN}', "validations.jsonl": '{"acc": 1}\n'}, "acc", None),
}


@pytest.mark.parametrize(("files", "name", "value"), FILES.values(), ids=FILES)
def test_where_the_metric_is(tmp_path: Path, files: dict[str, str], name: str, value: float | None) -> None:
    for file, content in files.items():
        (tmp_path / file).write_text(content)
    assert find_metric(tmp_path, name) == value


def test_without_optuna_the_fix_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failed:
        stdout, stderr, returncode = "", "Traceback ...\nModuleNotFoundError: No module named 'optuna'\n", 1

    monkeypatch.setattr("ebb.elastic.launch.sweep_point.subprocess.run", lambda *_, **__: Failed())
    with pytest.raises(PointError, match="add the line `optuna` to the requirements"):
        place(WORDS, environment(tmp_path, 1), print)
    assert not (tmp_path / "study" / "001.json").exists()


def test_a_search_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(PointError, match="submit the sweep again"):
        place(WORDS, {ENV_SWEEP_SEARCH: "{}"}, print)
    (tmp_path / "file").write_text("")
    with pytest.raises(PointError, match="cannot be used"):
        place(WORDS, {ENV_SWEEP_SEARCH: json.dumps({"study": str(tmp_path / "file"), "number": 1})}, print)


@pytest.mark.e2e
def test_optuna_in_a_process_of_its_own(tmp_path: Path) -> None:
    said = list[str]()
    words = place(WORDS, {**os.environ, **environment(tmp_path, 1)}, said.append)
    here = optuna_sampler.suggest({"seed": 0, "number": 1, "mode": "min", "axes": AXES, "trials": []})
    assert words == ["train.py", "--lr", here["lr"], f"--arch={here['arch']}"]
