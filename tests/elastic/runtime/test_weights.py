"""The gradient of a step is the mean over what counts in it, such as tokens, at any number of ranks and micro-batches."""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from ebb import elastic
from ebb.elastic.data.order import Piece, samples
from ebb.elastic.runtime.gradients import SummedGradients
from ebb.elastic.runtime.members import Members
from ebb.elastic.runtime.plan import MicroBatch
from ebb.elastic.runtime.process_group import PeerLostError
from ebb.elastic.runtime.weights import Weights, check_weight
from ebb.elastic.speed import Speed
from tests.elastic.runtime import programs
from tests.elastic.runtime.generations import play
from tests.elastic.runtime.programs import Program
from tests.elastic.runtime.ranks import together

SEED, WORDS, LONGEST = 3, 11, 12
LENGTHS = [12, 1, 0, 5, 9, 2, 0, 12, 3, 7, 1, 4, 0, 11, 2, 6, 8, 1, 10, 3, 5, 2]  # of each sequence; some have no token
GLOBAL_BATCH = 7  # three steps, and one of a single sequence


class Sequences(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return len(LENGTHS)

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        if not 0 <= number < len(self):
            raise IndexError(number)
        words = torch.tensor([(3 * number + at * (number + 1)) % WORDS for at in range(LONGEST + 1)])
        targets = words[1:].clone()
        targets[LENGTHS[number] :] = -100  # padding
        return {"words": words[:-1], "targets": targets}


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Embedding(WORDS, 6), torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, WORDS))


def mean_loss(model: torch.nn.Module, words: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return cross_entropy(model(words).flatten(0, 1), targets.flatten())


def packed(words: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """All sequences in one row, without padding."""
    kept = targets != -100
    return words[kept][None], targets[kept][None]


def gradients_of(model: torch.nn.Module) -> list[float]:
    return torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None]).tolist()


@dataclass(frozen=True, kw_only=True)
class Case:
    output: Path = Path()
    settings: dict[str, Any]
    packed: bool = False
    clip: float = 0.0
    compression: str = "none"
    most_off: float = 1e-6


def train(case: Case) -> dict[str, Any]:
    """The gradient of each step, of weights that stay as they are."""
    settings = {"global_batch": GLOBAL_BATCH, "epochs": 1, "seed": SEED, "log_every": 1, "workers": 0, **case.settings}
    found = []
    with elastic.start(output=case.output, **settings) as run:
        model = run.distribute(network(), speed=Speed(compression=case.compression))
        optimizer = torch.optim.SGD(model.parameters(), 0.0)
        run.register_state(model=model, optimizer=optimizer)
        for step in run.steps(run.loader(Sequences())):
            for batch in step:
                words, targets = batch["words"], batch["targets"]
                tokens = (targets != -100).sum()
                if case.packed and tokens:
                    words, targets = packed(words, targets)
                step.backward(mean_loss(model, words, targets), weight=tokens)
            if case.clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), case.clip)
            found.append(gradients_of(model))
            optimizer.step()
            optimizer.zero_grad()
    return {"left": False, "gradients": found}


def reference(clip: float = 0.0) -> tuple[list[list[float]], list[float]]:
    """Gradient and loss of each step as one batch, on one rank, without a run."""
    gradients, losses = [], []
    for start in range(0, len(LENGTHS), GLOBAL_BATCH):
        torch.manual_seed(SEED)
        model = network()
        piece = Piece(start, min(start + GLOBAL_BATCH, len(LENGTHS)))
        read = [Sequences()[number] for number in samples(SEED, len(LENGTHS), piece)]
        loss = mean_loss(model, *(torch.stack([each[name] for each in read]) for name in ("words", "targets")))
        loss.backward()  # type: ignore[no-untyped-call]
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        gradients.append(gradients_of(model))
        losses.append(loss.item())
    return gradients, losses


def off(found: list[float], expected: list[float]) -> float:
    """The relative distance of two gradients."""
    mine, want = (torch.tensor(each, dtype=torch.float64) for each in (found, expected))
    return float((mine - want).norm() / want.norm())


WORLDS = {
    "one": (1, Case(settings={})),
    "one-by-one": (1, Case(settings={"max_micro_batch": 1})),
    "two-packed": (2, Case(settings={}, packed=True)),
    "three-accumulated": (3, Case(settings={"max_micro_batch": 1}, packed=True)),
    "three-in-memory": (3, Case(settings={"max_micro_batch": 2, "recovery": "memory"})),
    "three-in-bf16": (3, Case(settings={"max_micro_batch": 2, "recovery": "memory"}, compression="bf16", most_off=0.01)),
    "two-of-four-virtual": (2, Case(settings={"max_micro_batch": 1, "virtual_workers": 4})),
    "four-in-memory": (4, Case(settings={"recovery": "memory"})),
    "five-clipped": (5, Case(settings={}, clip=0.05)),
    "six-packed": (6, Case(settings={}, packed=True)),
    "seven": (7, Case(settings={"max_micro_batch": 1})),
    "eight": (8, Case(settings={})),
    "eight-in-memory": (8, Case(settings={"recovery": "memory"}, packed=True)),
}


@pytest.mark.parametrize("name", WORLDS)
def test_the_gradient_of_uneven_sequences_is_that_of_one_batch(tmp_path: Path, name: str) -> None:
    world_size, case = WORLDS[name]
    case = replace(case, output=tmp_path)
    in_memory = case.settings.get("recovery") == "memory"
    answers = play(train, case, output=tmp_path, world_size=world_size) if in_memory else together(train, world_size, case)
    expected, losses = reference(case.clip)
    for answer in answers:
        pairs = zip(answer["gradients"], expected, strict=True)
        assert max(off(mine, want) for mine, want in pairs) < case.most_off
    told = [json.loads(line)["loss"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert told == [pytest.approx(each, abs=2e-5) for each in losses]


def weights_after(output: Path, **facts: Any) -> str:
    program = Program(output=output, plain=True, weighted=True, **facts)
    (answer,) = together(programs.train, 1, program)
    return str(answer["weights"])


def test_virtual_workers_give_the_same_bits_after_a_loss_in_memory(tmp_path: Path) -> None:
    """A step is done again by those that are left, with the weights of all."""
    settings = {"virtual_workers": 5, "max_micro_batch": 2}
    calm = weights_after(tmp_path / "calm", settings=settings)
    memory = {"recovery": "memory", **settings}
    program = Program(output=tmp_path / "lost", plain=True, weighted=True, vanish_at=4, leaver=2, settings=memory)
    answers = play(programs.train, program, output=program.output, world_size=3)
    assert [answer and answer["weights"] for answer in answers] == [calm, calm, None]


def test_a_step_that_is_done_again_by_others_has_the_same_gradient(tmp_path: Path) -> None:
    memory = {"recovery": "memory", "max_micro_batch": 2}
    facts: dict[str, Any] = {"plain": True, "weighted": True, "settings": memory, "break_at": 5}
    (calm,) = together(programs.train, 1, Program(output=tmp_path / "calm", **facts))
    program = Program(output=tmp_path / "lost", vanish_at=5, leaver=1, **facts)
    answers = play(programs.train, program, output=program.output, world_size=3)
    for answer in (answers[0], answers[2]):
        for mine, want in zip(answer["gradient"], calm["gradient"], strict=True):
            assert torch.allclose(torch.tensor(mine), torch.tensor(want), atol=1e-6)


def test_a_step_that_begins_once_more_with_smaller_micro_batches_counts_once(tmp_path: Path) -> None:
    large = programs.train(Program(output=tmp_path / "large", plain=True, weighted=True))
    small = programs.train(Program(output=tmp_path / "small", plain=True, weighted=True, room=4, short_in="backward"))
    for mine, want in zip(small["gradient"], large["gradient"], strict=True):
        assert torch.allclose(torch.tensor(mine), torch.tensor(want), atol=1e-6)


def mixed(output: Path, alone: list[Any]) -> str:
    """One weight for each micro-batch of this rank, or the error. A number stands for all ranks."""
    try:
        with elastic.start(output=output, global_batch=4, epochs=1, max_micro_batch=1, workers=0) as run:
            weights = iter(alone[run.rank])
            model = run.distribute(torch.nn.Linear(4, 1))
            run.register_state(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1))
            for step in run.steps(run.loader(programs.Points(8))):
                for batch in step:
                    step.backward(model(batch["point"]).mean(), weight=next(weights))
    except (RuntimeError, ValueError) as error:
        return str(error)
    return "done"


def test_a_rank_without_weights_among_others_with_weights_is_an_error_on_all(tmp_path: Path) -> None:
    found = together(mixed, 2, tmp_path, [[2.0] * 4, [None] * 4])
    assert all("give weight=... in every micro-batch of every step, or in none" in each for each in found), found
    assert all("other ranks" in each for each in found)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        pytest.param([1, 2, None], "none in other micro-batches", id="micro-batches"),
        pytest.param([1, 1, 1, 1, None, None, None, None], "none in other steps", id="steps"),
        pytest.param([0, 0, 0, 0], "0 on all ranks", id="all-zero"),
        pytest.param([1, -1], "weight=-1); allowed is a finite number of 0 or more", id="negative"),
        pytest.param([1, 1, 0, 0, 0, 0, 1, 0], "done", id="zeros-among-others"),
    ],
)
def test_weights_that_mean_nothing_are_refused(tmp_path: Path, weights: list[Any], words: str) -> None:
    assert words in mixed(tmp_path, [weights])


@pytest.mark.parametrize("weight", [math.nan, math.inf, -0.5, True, "7", torch.tensor([1, 2]), torch.tensor(-1.0), None])
def test_a_weight_that_is_none_is_named(weight: Any) -> None:
    with pytest.raises(ValueError, match=r"step 4: step\.backward\(loss, weight=.*\); allowed is a finite number of 0 or more"):
        check_weight(weight, 4)


@pytest.mark.parametrize("weight", [0, 3, 2.5, torch.tensor(3), torch.tensor([2.5])])
def test_numbers_and_tensors_of_one_number_are_weights(weight: Any) -> None:
    assert check_weight(weight, 4) == float(weight)


class Counting(Members):
    """A group of two, both of which have the same numbers."""

    sums = 0
    lost = False

    def begin_sum(self, numbers: list[float]) -> Any:
        if self.lost:
            raise PeerLostError("gone")
        self.sums += 1
        return lambda: [2 * each for each in numbers]


def test_a_run_without_weights_sums_once_in_a_generation() -> None:
    group = Counting(0, 2, torch.device("cpu"))
    weights = Weights(group)
    for _ in range(3):
        weights.add(None, last=False)
        weights.add(None, last=True)
        assert weights.settle(4) == (0.0, 1.0)
    assert group.sums == 1
    weights.follow()
    weights.add(3.0, last=True)
    assert weights.settle(4) == (6.0, 4 / 6)
    assert group.sums == 2


def test_another_generation_begins_as_its_newcomers_do() -> None:
    """They sum in their first step, with weights or without."""
    group = Counting(0, 2, torch.device("cpu"))
    gradients = SummedGradients([torch.nn.Linear(1, 1)], group, summed_as=None)
    whole = MicroBatch(worker=0, piece=Piece(0, 4), first=True, last=True)
    for sums in (1, 1, 2):
        gradients.follow() if sums == 2 else None
        gradients.weight(whole, 4)
        gradients.share(4)
        assert group.sums == sums


def test_gradients_of_thousands_of_tokens_are_small_before_they_are_divided() -> None:
    """In fp16 they would overflow; the first step of a generation, in which newcomers know nothing, is divided by samples."""
    weights = Weights(Counting(0, 2, torch.device("cpu")))
    for mine, unit in ((3000.0, 4), (4096.0, 8192), (20.0, 8192), (20.0, 32)):  # of two ranks, and the step before's
        weights.add(mine, last=True)
        part, (total, factor) = weights.part(mine, 4), weights.settle(4)
        assert part == mine / unit
        assert part * factor == pytest.approx(mine / total)
    weights.follow()
    assert weights.part(3000.0, 4) == 3000 / 4


def test_a_step_has_the_same_bits_as_the_first_of_a_generation_and_after_others() -> None:
    """Of six samples, which is no power of two."""
    gradient = torch.rand(1000, generator=torch.Generator().manual_seed(0)) / 3

    def divided(*before: float) -> torch.Tensor:
        weights = Weights(Members(0, 1, torch.device("cpu")))
        for each in (*before, 59.0):
            weights.add(each, last=True)
            part, (_, factor) = weights.part(each, 6), weights.settle(6)
        return gradient * part * factor

    assert torch.equal(divided(), divided(41.0, 1300.0))


def test_a_step_that_begins_anew_has_no_weights_yet() -> None:
    weights = Weights(Counting(0, 2, torch.device("cpu")))
    weights.add(5.0, last=False)
    weights.forget()
    weights.add(1.0, last=False)
    weights.add(2.0, last=True)
    assert weights.settle(4) == (6.0, 4 / 6)


def test_a_peer_that_is_gone_is_noticed_when_the_sum_is_asked_for() -> None:
    """And not in the middle of the program's loop."""
    group = Counting(0, 2, torch.device("cpu"))
    group.lost = True
    weights = Weights(group)
    weights.add(5.0, last=True)
    with pytest.raises(PeerLostError):
        weights.settle(4)
