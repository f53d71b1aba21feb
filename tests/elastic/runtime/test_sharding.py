"""FSDP2 inside pods, and replicas across them, through losses and joins."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ebb.elastic.notices.relay import Relay
from ebb.elastic.runtime import sharding
from ebb.elastic.runtime.config import ConfigError, resolve
from ebb.elastic.runtime.loop import Loop
from ebb.elastic.runtime.members import Members
from ebb.elastic.runtime.process_group import Group
from ebb.elastic.runtime.sharding import check, check_kinds, check_state
from ebb.elastic.runtime.snapshots import MemoryFile
from testing import exactness as ledger
from tests.elastic.machines import until
from tests.elastic.runtime import pods
from tests.elastic.runtime.pods import Program
from tests.elastic.runtime.ranks import together

MEMORY = {"recovery": "memory", "checkpoint_seconds": 1e6, "checkpoint_min_seconds": 1e6}


@pytest.fixture(scope="module")
def ddp(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[int, float], dict[str, Any]]:
    """Two ranks of DistributedDataParallel, undisturbed: losses and last weights."""
    output = tmp_path_factory.mktemp("ddp")
    first, _ = together(pods.alone, 2, Program(output=output, settings={"recovery": "restart"}))
    return losses(output), first["weights"]


def losses(output: Path) -> dict[int, float]:
    """By step, as rank 0 has told them."""
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: float(line["loss"]) for line in lines}


def difference(weights: dict[str, Any], others: dict[str, Any]) -> float:
    return max(float((torch.tensor(each) - torch.tensor(others[name])).abs().max()) for name, each in weights.items())


@pytest.mark.e2e
def test_sharded_pods_that_come_and_go_train_as_ddp_does(tmp_path: Path, ddp: tuple[dict[int, float], dict[str, Any]]) -> None:
    """A rank of b is lost, c joins, all of a is lost after its update, d joins from c, which leaves at a notice."""
    program = Program(
        output=tmp_path,
        settings=MEMORY,
        dies={"b": (10, [1], "pass"), "a": (30, [0, 1], "body")},
        joins={"c": 20, "d": 40},
        notices={"c": 44},
    )
    answers = pods.play(program)
    assert answers["a"] == answers["b"] == [None, None]
    assert [(each["left"], each["steps"]) for each in answers["c"]] == [(True, list(range(21, 45)))] * 2
    assert [each["steps"] for each in answers["d"]] == [list(range(41, 50))] * 2
    for answer in answers["d"]:
        assert difference(answer["weights"], ddp[1]) < 1e-5
        assert answer["part"] < 0.6 * sum(torch.tensor(each).numel() for each in answer["weights"].values())
    found = losses(tmp_path)
    assert set(range(1, 51)) - found.keys() <= {31}, "rank 0 is lost in it after its update"
    assert found == pytest.approx({step: ddp[0][step] for step in found}, abs=1e-5)
    assert ledger.check(tmp_path).exact


@pytest.mark.e2e
def test_a_checkpoint_in_parts_is_loaded_by_other_numbers_of_ranks(tmp_path: Path, ddp: tuple[dict[int, float], Any]) -> None:
    """Saved by four ranks, then by three, then loaded by one, which has all of it."""
    settings = {"recovery": "memory", "checkpoint_seconds": 1.0, "checkpoint_min_seconds": 0.0}
    for size, stop_at in ((4, 9), (3, 14), (1, None)):
        answers = pods.play(Program(output=tmp_path, settings=settings, stop_at=stop_at), pods=1, size=size)["a"]
        assert [each["resumed"] for each in answers] == [{4: 0, 3: 10, 1: 15}[size]] * size
        kept = sorted(path.name for path in (tmp_path / "checkpoints").glob("g*.json"))[-1].removesuffix(".json")
        assert len(list((tmp_path / "checkpoints").glob(f"{kept}.part*"))) == (size if size > 1 else 0)
    assert difference(answers[0]["weights"], ddp[1]) < 1e-5
    assert losses(tmp_path) == pytest.approx(ddp[0], abs=1e-5)
    assert ledger.check(tmp_path).exact


@pytest.mark.e2e
@pytest.mark.parametrize("disturbed_by", ["notice", "loss"])
def test_an_evaluation_of_a_sharded_model_is_made_by_those_that_stay(tmp_path: Path, disturbed_by: str) -> None:
    """Pod b leaves it, or is lost in it. The figure is that of one process."""
    alone = Program(output=tmp_path / "alone", settings={"recovery": "restart"}, evaluate_at=2, stop_at=3)
    (calm,) = together(pods.alone, 1, alone)
    program = Program(
        output=tmp_path / "pods",
        settings=MEMORY,
        evaluate_at=2,
        stop_at=3,
        dies={"b": (2, [0, 1], "evaluation")} if disturbed_by == "loss" else {},
        noticed_in_evaluation="b" if disturbed_by == "notice" else "",
    )
    answers = pods.play(program)
    assert [answer and (answer["left"], answer["step"]) for answer in answers["b"]] == [
        None if disturbed_by == "loss" else (True, 3)
    ] * 2
    assert [each["steps"] for each in answers["a"]] == [[0, 1, 2, 3]] * 2
    for each in answers["a"]:
        assert each["evaluated"] == pytest.approx(calm["evaluated"], abs=1e-5)


@pytest.mark.e2e
def test_a_rank_that_runs_out_of_memory_takes_its_pod_into_smaller_micro_batches(tmp_path: Path, ddp: tuple[Any, Any]) -> None:
    """In new processes: the others are in the same pass, and cannot begin it once more."""
    settings = {"recovery": "memory", "checkpoint_seconds": 0.1, "checkpoint_min_seconds": 0.0, "max_micro_batch": 3}
    program = Program(output=tmp_path, settings=settings, room={4: 1}, stop_at=6)
    assert pods.play(program, pods=1)["a"] == [None, None]
    assert json.loads((tmp_path / "micro-batch.json").read_text()) == {"this machine's CPU": 2}
    answers = [pods.play(program, pods=1)["a"] for _ in range(2)]
    assert answers[0] == [None, None]
    assert [each["steps"][-1] for each in answers[1]] == [6, 6]
    assert answers[1][0]["resumed"] > 0
    found = losses(tmp_path)
    assert found == pytest.approx({step: ddp[0][step] for step in range(1, 8)}, abs=1e-5)


def parts_in(relay: Relay, local_rank: int) -> dict[int, MemoryFile]:
    """By step, those that are whole."""
    return {facts["step"]: file for file in map(MemoryFile, relay.memory(local_rank)) if (facts := file.facts())}


@pytest.mark.e2e
def test_the_loss_of_all_pods_costs_the_steps_since_the_snapshot_in_one_machines_memory(tmp_path: Path) -> None:
    """Machine b is gone too, and of a's newest snapshot one part is not whole. Then both parts of that rank are lost."""
    calm = pods.play(Program(output=tmp_path / "calm", settings=MEMORY, stop_at=11))["a"][0]
    output = tmp_path / "pods"
    settings = {**MEMORY, "snapshot_overhead": 1e9, "min_step_seconds": 0.1}
    program = Program(output=output, settings=settings, stop_at=11, waits_for_memory=True)
    with TemporaryDirectory(prefix="ebb-") as folder, closing(pods.Pods(Path(folder), output, size=2)) as launcher:
        launcher.form(program, ("a", "b"))
        until("some steps", lambda: launcher.done() >= 4)
        launcher.lose_all_processes()
        done = launcher.done()
        launcher.machines.pop("b").remove()
        first, other = (parts_in(launcher.machines["a"], local_rank) for local_rank in (0, 1))
        if first.keys() == other.keys() and len(other) > 1:  # unless the kill itself has cut it off
            other[max(other)].clear()
        saves = replace(program, settings={**program.settings, "checkpoint_seconds": 0.1, "checkpoint_min_seconds": 0.0})
        launcher.form(saves, ("c", "a"))
        until("a checkpoint", lambda: list((output / "checkpoints").glob("g00002-*.json")))
        until("newer snapshots", lambda: launcher.done() >= done + 3)
        launcher.lose_all_processes()
        for relay in launcher.machines.values():
            for part in parts_in(relay, 1).values():
                part.clear()
        launcher.form(replace(program, settings=MEMORY), ("c", "a"))
        answers = pods.answers_of(launcher, ("c", "a"))
    second = next(json.loads(line) for line in (output / "ledger" / "g2-r0.jsonl").read_text().splitlines())
    assert done - 3 <= second["resumed_step"] <= done, "it went on from the one before"
    assert {each["from"] for each in answers} == {f"resumed after step {answers[0]['resumed']} of generation 2"}, "a checkpoint"
    assert [each["weights"] for each in answers] == [calm["weights"]] * 4
    assert ledger.check(output, unfinished=(3, 12)).exact


def test_a_rank_that_was_left_behind_takes_its_pod_past_the_save() -> None:
    """In which the pod's ranks ask each other: one that skips it alone would answer in the next step."""
    done: list[str] = []

    def between(left_behind: bool) -> list[str]:
        done.clear()
        group = SimpleNamespace(is_over=False, abandon=lambda: done.append("abandoned"))
        loop: Any = SimpleNamespace(
            **{"_pending": [], "_lost_seconds": 0.0, "_reported": 3, "step": 3, "lag": 0, "min_step_seconds": 0.0},
            **{"pod": SimpleNamespace(any=lambda _mine: True), "group": group, "follows": object(), "snapshots": None},
            notice=SimpleNamespace(wait=lambda _seconds: None),
            watchdog=SimpleNamespace(beat=lambda: None),
            _answers=lambda _left: ["agreed"],
            _is_left_behind=lambda _agreed, _seconds: left_behind,
            _go_on=lambda _leaving, change, broken: done.append(f"followed, {change=}, {broken=}"),
            _save=lambda _wish: done.append("saved"),
        )
        assert not Loop._between(loop, 0.0)
        return list(done)

    assert between(True) == between(False) == ["abandoned", "followed, change=False, broken=True"]


FOUR = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "RANK": "3", "LOCAL_RANK": "1"}


@pytest.mark.parametrize(
    ("settings", "environment", "options", "words"),
    [
        ({"virtual_workers": 4}, FOUR, [], r"--virtual-workers 4 exclude each other.*leave one of them out"),
        ({"checkpoint_file": "x.pt"}, FOUR, [], r"--checkpoint-file x.pt is one file.*checkpoint export"),
        ({}, FOUR, ["bucket_cap_mb"], r"bucket_cap_mb=...\) is DistributedDataParallel's: leave it out"),
        ({}, {**FOUR, "WORLD_SIZE": "5"}, [], r"as many processes on every machine; this one has 2 of 5.*--nproc-per-node"),
    ],
)
def test_what_excludes_a_sharded_model_is_said_before_it_is_made(
    tmp_path: Path, settings: dict[str, Any], environment: dict[str, str], options: list[str], words: str
) -> None:
    config = resolve(environment, output=tmp_path, **settings)
    with pytest.raises(ConfigError, match=words):
        check(config, Members(3, 4, torch.device("cpu")), options)


def test_an_optimizer_of_the_weights_before_they_were_cut_is_refused() -> None:
    before, model = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    with pytest.raises(ConfigError, match=r"optimizer=SGD\) has weights that are not.*after run.distribute"):
        check_state([model], torch.optim.SGD(before.parameters(), 0.1), {})
    check_state([model], torch.optim.SGD(model.parameters(), 0.1), {"scaler": torch.amp.GradScaler("cpu", enabled=False)})


def test_a_scaler_is_refused() -> None:
    model = torch.nn.Linear(2, 2)
    with pytest.raises(ConfigError, match=r"scaler=GradScaler\).*use bf16"):
        check_state([model], torch.optim.SGD(model.parameters(), 0.1), {"scaler": torch.amp.GradScaler("cpu")})


def test_trained_weights_of_two_types_in_one_block_are_refused() -> None:
    """Not those in two blocks, nor frozen ones: adapters in fp32 beside weights in bf16."""
    block = torch.nn.Sequential(torch.nn.Linear(2, 2).bfloat16().requires_grad_(False), torch.nn.Linear(2, 2))
    model = torch.nn.Sequential(torch.nn.ModuleList([block, torch.nn.Linear(2, 2).bfloat16()]), torch.nn.Linear(2, 2))
    check_kinds(model)
    block.requires_grad_(True)
    with pytest.raises(ConfigError, match=r"in Sequential 0.weight is of torch.bfloat16, 1.weight is of torch.float32; call"):
        check_kinds(model)


def test_a_sharded_model_needs_recovery_in_memory(tmp_path: Path) -> None:
    config = resolve({}, output=tmp_path, recovery="restart")
    with pytest.raises(ConfigError, match=r"--recovery is 'restart' here: set --recovery memory"):
        check(config, Group(0, 1, torch.device("cpu")), [])


def test_a_torch_that_cannot_shard_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding, "FSDPModule", type("Older", (), {"set_gradient_divide_factor": None}))
    with pytest.raises(ConfigError, match=r"shard=True\) needs torch 2.9 or newer, and this one is .*leave shard out"):
        check(resolve(FOUR, output=tmp_path), Members(3, 4, torch.device("cpu")), [])
