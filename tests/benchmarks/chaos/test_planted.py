"""The planted faults break what they say, in a copy of the module: else a judge that finds nothing would look right."""

import importlib.util
import sys
from typing import Any

import pytest

from benchmarks.chaos.planted import sitecustomize
from ebb.controller.reconciler import worker_state
from ebb.elastic.checkpoint import fence
from ebb.elastic.checkpoint.errors import Stale
from ebb.elastic.data import order

MEMBERSHIP, KEY = "/ebb/job/generation", "/ebb/checkpoints/here"


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module anew under another name, by the finder that breaks it."""

    def load(plant: str, module: Any) -> Any:
        name = f"{module.__name__}_planted"
        spec = importlib.util.spec_from_file_location(name, module.__file__)
        assert spec is not None
        assert spec.loader is not None
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
        planter = sitecustomize.Planter(name, sitecustomize.PLANTED[plant][1])
        monkeypatch.setattr(sys, "meta_path", [planter, *sys.meta_path])
        assert planter.find_spec("something else", None) is None
        found = planter.find_spec(name, None)
        assert found is spec
        copy = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, copy)
        spec.loader.exec_module(copy)
        return copy

    return load


def test_each_is_planted_into_a_module_of_that_name() -> None:
    found = {name: module for name, (module, _) in sitecustomize.PLANTED.items()}
    assert found == {"fencing": fence.__name__, "sampler": order.__name__, "budget": worker_state.__name__}


def test_without_being_chosen_nothing_is_planted() -> None:
    assert not any(isinstance(finder, sitecustomize.Planter) for finder in sys.meta_path)


def test_the_sampler_is_off_by_one(planted: Any) -> None:
    facts: dict[str, Any] = {"dataset_size": 8, "epochs": 1, "global_batch": 4, "seed": 1}
    right, wrong = order.Stream(**facts), planted("sampler", order).Stream(**facts)
    whole = right.samples(order.Piece(0, 8))
    assert right.samples(right.step(0)) == whole[:4]
    assert wrong.samples(wrong.step(0)) == whole[1:5]
    assert wrong.samples(wrong.step(1)) == whole[4:], "the last step has no sample after it"


def test_a_reclaim_is_charged_to_the_budget(planted: Any) -> None:
    node = {"metadata": {"name": "n1"}}
    worker = worker_state.Worker(
        index=0, name="w", uid="u", node="n1", phase="Running", attempt=0, spec="", ip="", grace_seconds=30, deleted_at=None,
        overdue_at=None, exit_code=None, exit_reason="", exit_message="", finished_at=None, started=True, started_at=1.0, pod={},
    )  # fmt: skip
    wrong = planted("budget", worker_state)
    assert worker_state.judge(worker, node, 0.0, node_gone=True).outcome is worker_state.Outcome.RECLAIMED
    assert wrong.judge(worker, node, 0.0, node_gone=True).outcome is wrong.Outcome.FAILED


class Register:
    """etcd with a membership of generation 2, and a checkpoint of it."""

    def __init__(self) -> None:
        self.values = {MEMBERSHIP: b'{"number": 2}', KEY: b'{"name": "g00002-s00000009-r0", "generation": 2, "step": 9}'}

    def read(self, key: str) -> tuple[bytes, int]:
        return self.values[key], 1

    def put_if(self, key: str, value: bytes, *, revision: int, guard: str, guard_value: bytes) -> bool:
        assert revision == 1
        assert self.values[guard] == guard_value
        self.values[key] = value
        return True


class Manifest:
    name, generation, step = "g00001-s00000005-r0", 1, 5


def test_an_older_generation_commits(planted: Any) -> None:
    right, wrong = Register(), Register()
    manifest: Any = Manifest()
    with pytest.raises(Stale):
        fence.EtcdFence(right, generation=1, membership=MEMBERSHIP, folder="here").commit(manifest)
    assert b'"generation": 2' in right.values[KEY]
    copy = planted("fencing", fence)
    copy.EtcdFence(wrong, generation=1, membership=MEMBERSHIP, folder="here").commit(manifest)
    assert b'"generation": 1' in wrong.values[KEY]
