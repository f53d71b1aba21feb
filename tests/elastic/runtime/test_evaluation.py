"""A notice or a loss in the middle of an evaluation: the step before it is kept, and the next generation evaluates again."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from ebb import elastic
from ebb.elastic.checkpoint import Stale
from ebb.elastic.checkpoint.__main__ import entries
from ebb.elastic.notices.notice import Notice
from ebb.elastic.runtime import evaluation, peer_loss
from ebb.elastic.runtime.config import resolve
from ebb.elastic.runtime.evaluation import evaluate
from ebb.elastic.runtime.process_group import Group, PeerLostError
from testing import exactness as ledger
from tests.elastic.runtime.programs import Points, Program, network, train
from tests.elastic.runtime.ranks import Ended, together

STEPS = 12  # 10 samples each of 37, 3 epochs


def program(output: Path, **changes: Any) -> Program:
    """Without batch normalisation, whose statistics are each rank's own: so two ranks end with the same bits."""
    return Program(output=output, plain=True, **{"evaluate_at": 7, **changes})


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    answers = together(train, 2, program(tmp_path_factory.mktemp("calm")))
    assert [answer["batches"] for answer in answers] == [20, 20]
    return dict(answers[0])


def test_a_notice_ends_it_on_all_ranks_and_the_next_generation_makes_it(tmp_path: Path, calm: dict[str, Any]) -> None:
    first = together(train, 2, program(tmp_path, leaver=1, disturbed_by="notice"))
    assert [(answer["left"], answer["step"]) for answer in first] == [(True, 8)] * 2
    assert (first[0]["batches"] <= 3, first[1]["batches"]) == (True, 3)  # of 20
    assert "evaluated" not in first[0]
    second = together(train, 2, program(tmp_path))
    assert [answer["steps"] for answer in second] == [[8, 9, 10, 11]] * 2
    assert second[0]["evaluated"] == {"owed": calm["evaluated"][7]}
    assert second[0]["weights"] == calm["weights"]
    assert [entry.step for entry in entries(tmp_path / "checkpoints", verify=True) if entry.best] == [8]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert ledger.check(tmp_path).exact


def test_a_second_notice_leaves_it_owed(tmp_path: Path, calm: dict[str, Any]) -> None:
    for leaver in (0, 1):
        answers = together(train, 2, program(tmp_path, leaver=leaver, disturbed_by="notice"))
        assert [(answer["left"], answer["step"]) for answer in answers] == [(True, 8)] * 2
    assert together(train, 2, program(tmp_path))[0]["evaluated"] == {"owed": calm["evaluated"][7]}


def test_after_the_last_step_it_is_owed_too(tmp_path: Path) -> None:
    (first,) = together(train, 1, program(tmp_path, evaluate_at=STEPS - 1, disturbed_by="notice"))
    assert (first["left"], first["step"]) == (True, STEPS)
    assert owed_at_the_end(tmp_path)


def owed_at_the_end(output: Path) -> bool:
    """A generation that finds all steps done."""
    (answer,) = together(train, 1, program(output))
    return answer["owes"] is True and answer["steps"] == []


def test_a_lost_rank_costs_the_evaluation_and_no_step(tmp_path: Path, calm: dict[str, Any]) -> None:
    found = together(train, 2, program(tmp_path, leaver=1, disturbed_by="loss"))
    assert found == [Ended(75), Ended(9)]
    second = together(train, 2, program(tmp_path))
    assert second[0]["steps"] == [8, 9, 10, 11]
    assert second[0]["evaluated"] == {"owed": calm["evaluated"][7]}
    assert second[0]["weights"] == calm["weights"]
    assert ledger.check(tmp_path).exact


def test_a_body_that_ends_the_loop_with_an_evaluation_reports_its_step(tmp_path: Path) -> None:
    (answer,) = together(train, 1, program(tmp_path, break_at=7))
    assert (answer["step"], list(answer["evaluated"])) == (8, [7])
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 9))


def evaluate_and_go_on(run: elastic.Run, lost_in: str) -> dict[str, Any]:
    """To the second step's body."""
    model = run.distribute(network(plain=True))
    bias, optimizer = model.get_parameter("0.bias"), torch.optim.SGD(model.parameters(), 0.1)
    run.register_state(model=model, optimizer=optimizer)
    first = None
    for step in run.steps(run.loader(Points())):
        first = step.number if first is None else first
        if step.number == 1:
            break
        for batch in step:
            step.backward(cross_entropy(model(batch["point"]), batch["label"]))
        optimizer.step()
        run.evaluate(Points(4), lambda batch: {"loss": cross_entropy(model(batch["point"]), batch["label"])})
        if lost_in == "the same body":
            raise Stale("others have gone on")
        with torch.no_grad():
            bias.fill_(0.25)
    return {"first": first, "pending": run.evaluation_pending, "changed": bool((bias == 0.25).all())}


@pytest.mark.parametrize("lost_in", ["the same body", "the next body"])
def test_the_body_may_go_on_after_an_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost_in: str) -> None:
    """Its changes belong to the step; before it ends, the program need not have written the figures down."""

    def end(code: int) -> None:
        run._loop.close()  # type: ignore[union-attr]  # it has begun
        raise SystemExit(code)

    def lose() -> None:
        evaluate_and_go_on(run, lost_in)
        raise Stale("others have gone on")

    monkeypatch.setattr(peer_loss, "end", end)
    config = resolve({}, output=tmp_path, global_batch=10, workers=0, threads=torch.get_num_threads())
    with pytest.raises(SystemExit, match="75"), elastic.start(config, notice=Notice()) as run:
        lose()
    with elastic.start(config, notice=Notice()) as run:
        found = evaluate_and_go_on(run, lost_in)
    assert found == {"first": 1, "pending": lost_in == "the same body", "changed": lost_in == "the next body"}


def test_weights_that_are_there_for_the_evaluation_alone_are_never_kept(tmp_path: Path, calm: dict[str, Any]) -> None:
    """A notice waits for the end of the evaluation then; what a loss leaves is the state of no step."""
    settings = {"checkpoint_seconds": 600.0, "checkpoint_min_seconds": 600.0}
    changes = {"leaver": 0, "other_weights": "left", "settings": settings}
    (first,) = together(train, 1, program(tmp_path / "notice", disturbed_by="notice", **changes))
    assert (first["left"], first["step"], first["batches"]) == (True, 9, 40)  # the next step's agreement is the first with it
    assert list(first["evaluated"]) == [7]
    (second,) = together(train, 1, program(tmp_path / "notice"))
    assert (second["steps"][0], "evaluated" in second) == (9, False)
    found = together(train, 2, program(tmp_path / "loss", disturbed_by="loss", **{**changes, "leaver": 1}))
    assert found == [Ended(75), Ended(9)]
    again = together(train, 2, program(tmp_path / "loss"))
    assert again[0]["steps"] == list(range(STEPS))  # there was no checkpoint before
    assert again[0]["weights"] == calm["weights"]


class OnePod:
    """A rank whose pod's other ranks have lost nobody; it remembers what was put to the vote."""

    def __init__(self) -> None:
        self.lost: list[str] = []

    def together(self, work: Any) -> Any:
        try:
            return work()
        except PeerLostError as error:
            self.lost.append(str(error))
            raise

    def any(self, flag: bool) -> bool:
        return flag


class Three:
    def __len__(self) -> int:
        return 3

    def start(self, plan: Any, device: torch.device, say: Any) -> Any:
        yield from enumerate(plan)


def test_ranks_of_a_pod_leave_an_evaluation_together_where_one_loses_a_peer() -> None:
    """One that left alone would miss the others' collectives."""

    def told() -> bool:
        raise PeerLostError("the store is gone")

    pod, group = OnePod(), Group(0, 1, torch.device("cpu"))
    with pytest.raises(PeerLostError):
        evaluate([], Three(), lambda _: {}, group, batch_size=1, told=told, pod=pod)  # type: ignore[arg-type]  # parts of them
    assert pod.lost == ["the store is gone"]


def test_the_judged_weights_of_a_sharded_model_stay_each_ranks_own() -> None:
    """Rank 0's rows are no other rank's."""
    handed: list[torch.Tensor] = []

    class Handing(Group):
        def hand_out_tensors(self, tensors: list[torch.Tensor], source: int = 0) -> None:
            handed.extend(tensors)

    class Rows(torch.Tensor):
        pass

    group, average = Handing(0, 1, torch.device("cpu")), torch.ones(2)
    rows = torch.ones(2).as_subclass(Rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "DTensor", Rows)  # a real one needs the process group of a pod
        evaluate([], Three(), lambda _: {}, group, batch_size=1, told=lambda: False, more=[average, rows])  # type: ignore[arg-type]
    assert [each is average for each in handed] == [True]
