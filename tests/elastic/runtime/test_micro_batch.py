"""A step that runs out of memory is repeated with smaller micro-batches: the same samples, the same gradient."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from ebb import elastic
from ebb.elastic.contract import EXIT_PEER_LOST, EXIT_PROGRAM_FAILED
from ebb.elastic.data.order import Piece
from ebb.elastic.runtime.config import resolve
from ebb.elastic.runtime.main import run_program
from ebb.elastic.runtime.micro_batch import FILE, NoRoomError, halve, keep_limit, read_limit
from ebb.elastic.runtime.plan import MicroBatch
from testing import exactness as ledger
from tests.elastic.runtime import programs
from tests.elastic.runtime.generations import play
from tests.elastic.runtime.programs import Program
from tests.elastic.runtime.ranks import Ended, together

CPU = torch.device("cpu")
WHERE = ["forward", "loss", "backward"]
LAUNCHED = {"TORCHELASTIC_RUN_ID": "test"}


def lines(output: Path) -> list[Any]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def close(found: list[Any], wanted: list[Any]) -> bool:
    """Sums over other micro-batches have other last bits."""
    pairs = zip(found, wanted, strict=True)
    return all(torch.allclose(torch.tensor(one), torch.tensor(other), atol=1e-6) for one, other in pairs)


@pytest.mark.parametrize("recovery", ["restart", "memory"])
@pytest.mark.parametrize("where", WHERE)
def test_alone_the_gradient_is_the_undisturbed_one(tmp_path: Path, where: str, recovery: str) -> None:
    settings = {"recovery": recovery}
    (calm,) = together(programs.train, 1, Program(output=tmp_path / "calm", plain=True, settings=settings))
    short = Program(output=tmp_path / "short", plain=True, room=5, short_in=where, settings=settings)
    (answer,) = together(programs.train, 1, short)
    assert answer["steps"] == calm["steps"] == list(range(12))
    assert close(answer["gradient"], calm["gradient"])
    assert ledger.check(tmp_path / "short").exact
    for found, wanted in zip(lines(tmp_path / "short"), lines(tmp_path / "calm"), strict=True):
        assert found["loss"] == pytest.approx(wanted["loss"], abs=1e-5)
        assert found["figures"] == wanted["figures"] == {"right": 1.0}, "what the program adds up is not added twice"


@pytest.mark.parametrize("where", WHERE)
def test_it_leaves_no_trace(tmp_path: Path, where: str) -> None:
    """Bit for bit as if the micro-batches had always been as small: buffers and random numbers begin anew too."""
    small = Program(output=tmp_path / "small", settings={"max_micro_batch": 5})
    short = Program(output=tmp_path / "short", room=5, short_in=where)
    (wanted,), (found,) = together(programs.train, 1, small), together(programs.train, 1, short)
    assert found["weights"] == wanted["weights"]
    assert json.loads((tmp_path / "short" / FILE).read_text()) == {"this machine's CPU": 5}


def test_it_is_halved_until_it_fits(tmp_path: Path) -> None:
    program = Program(output=tmp_path, plain=True, room=1, settings={"global_batch": 9, "epochs": 1})
    (answer,) = together(programs.train, 1, program)
    assert answer["steps"] == list(range(5))
    assert [len(each) for each in answer["seen"][:13]] == [9, 5, 3, 2, *[1] * 9]


@pytest.mark.parametrize("recovery", ["restart", "memory"])
@pytest.mark.parametrize("where", ["forward", "loss"])
def test_one_rank_of_two_repeats_and_the_other_waits(tmp_path: Path, where: str, recovery: str) -> None:
    """DistributedDataParallel, or our own sums. Rank 0's share stays whole."""
    settings = {"recovery": recovery}
    (calm,) = together(programs.train, 1, Program(output=tmp_path / "calm", plain=True))
    program = Program(output=tmp_path / "short", plain=True, room=2, leaver=1, short_in=where, settings=settings)
    if recovery == "memory":
        answers = play(programs.train, program, output=tmp_path / "short", world_size=2)
    else:
        answers = together(programs.train, 2, program)
    assert [answer["steps"] for answer in answers] == [list(range(12))] * 2
    assert len({answer["weights"] for answer in answers}) == 1
    assert all(close(answer["gradient"], calm["gradient"]) for answer in answers)
    assert {len(each) for each in answers[0]["seen"]} == {5, 1}
    assert ledger.check(tmp_path / "short").exact


def test_in_memory_the_others_begin_the_step_once_more_too(tmp_path: Path) -> None:
    """It ran out while its gradients were on their way to them."""
    (calm,) = together(programs.train, 1, Program(output=tmp_path / "calm", plain=True))
    settings = {"recovery": "memory"}
    program = Program(output=tmp_path / "short", plain=True, room=2, leaver=1, short_in="backward", settings=settings)
    answers = play(programs.train, program, output=tmp_path / "short", world_size=2)
    assert [answer["steps"] for answer in answers] == [list(range(12))] * 2
    assert len({answer["weights"] for answer in answers}) == 1
    assert all(close(answer["gradient"], calm["gradient"]) for answer in answers)
    assert ledger.check(tmp_path / "short").exact


def launched(program: Program) -> dict[str, Any]:
    os.environ.update(LAUNCHED)
    return programs.train(program)


@pytest.mark.parametrize(
    ("world_size", "where", "guarded"),
    [
        pytest.param(1, "forward", False, id="alone-in-the-loop's-body"),
        pytest.param(2, "backward", True, id="two-while-gradients-are-on-their-way"),
        pytest.param(2, "forward", False, id="two-in-the-loop's-body"),
    ],
)
def test_where_the_loop_cannot_go_on_the_next_process_repeats(tmp_path: Path, world_size: int, where: str, guarded: bool) -> None:
    """It ends with 75, which spends nothing, and with a checkpoint; so do those that miss it."""
    (calm,) = together(programs.train, 1, Program(output=tmp_path / "calm", plain=True))
    short = Program(output=tmp_path / "short", plain=True, leaver=world_size - 1, short_in=where, guarded=guarded)
    short.room = {1: 5, 2: 3}[world_size]
    ends = together(launched, world_size, short)
    assert ends == [Ended(EXIT_PEER_LOST)] * world_size
    answers = together(launched, world_size, short)
    assert [answer["steps"] for answer in answers] == [list(range(12))] * world_size
    assert all(close(answer["gradient"], calm["gradient"]) for answer in answers)
    assert ledger.check(tmp_path / "short").exact


def test_the_next_process_goes_on_from_the_step(tmp_path: Path) -> None:
    """Not from a checkpoint of long ago: what was done is saved on the way out, as after a loss."""
    settings = {"checkpoint_seconds": 1e6, "checkpoint_min_seconds": 1e6}
    program = Program(output=tmp_path, plain=True, room=5, short_from=4, guarded=False, settings=settings)
    assert together(launched, 1, program) == [Ended(EXIT_PEER_LOST)]
    (answer,) = together(launched, 1, program)
    assert answer["steps"] == list(range(4, 12))
    assert ledger.check(tmp_path).exact


def parse(arguments: list[str], _: Any) -> elastic.RunConfig:
    return resolve({}, output=arguments[0], global_batch=4, epochs=1, workers=0)


@pytest.mark.parametrize("guarded", [True, False])
def test_one_sample_that_does_not_fit_is_the_programs_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], guarded: bool
) -> None:
    def learn(_: elastic.RunConfig, run: elastic.Run) -> None:
        model = run.distribute(torch.nn.Linear(1, 1))
        run.register_state(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1))
        for step in run.steps(run.loader(torch.ones(9, 1))):
            for _batch in step:
                if not guarded:
                    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
                with step.within_memory():
                    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    assert run_program([str(tmp_path)], parse, learn) == EXIT_PROGRAM_FAILED
    said = capsys.readouterr()
    if guarded:
        assert [line for line in said.out.splitlines() if "repeated" in line] == [
            "rank 0: 4 samples at once ran out of memory on this machine's CPU: step 0 is repeated with 2 at most, and the same "
            "gradient (CUDA out of memory. Tried to allocate 2.00 GiB.)",
            "rank 0: 2 samples at once ran out of memory on this machine's CPU: step 0 is repeated with 1 at most, and the same "
            "gradient (CUDA out of memory. Tried to allocate 2.00 GiB.)",
        ]
        assert said.err.startswith("error: out of memory: one sample does not fit into the memory of this machine's CPU. Take")
    else:
        assert "start the program with `python -m ebb.elastic.launch`" in said.err, "nobody would start the next process"


def test_other_errors_and_virtual_workers_are_left_alone(tmp_path: Path) -> None:
    """Virtual workers promise the same bits."""
    for settings, error in (
        ({}, RuntimeError("mat1 and mat2")),
        ({"virtual_workers": 2}, torch.OutOfMemoryError("out of memory")),
    ):
        with pytest.raises(type(error), match=str(error)):
            fail(resolve({}, output=tmp_path / str(len(settings)), workers=0, **settings), error)
        assert not (tmp_path / str(len(settings)) / FILE).exists()


def fail(config: elastic.RunConfig, error: RuntimeError) -> None:
    with elastic.start(config, notice=elastic.Notice()) as run:
        model = run.distribute(torch.nn.Linear(1, 1))
        run.register_state(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1))
        for step in run.steps(run.loader(torch.ones(9, 1))):
            for _batch in step:
                with step.within_memory():
                    raise error


def test_the_limit_is_kept_for_such_a_device_alone(tmp_path: Path) -> None:
    config = resolve({}, output=tmp_path, max_micro_batch=64)
    assert read_limit(config, CPU) == 64
    keep_limit(tmp_path, CPU, 16)
    keep_limit(tmp_path, CPU, 32)  # of another rank, which was later and had more room
    assert read_limit(config, CPU) == 16
    assert read_limit(resolve({}, output=tmp_path, max_micro_batch=8), CPU) == 8
    assert read_limit(resolve({}, output=tmp_path, virtual_workers=2), CPU) == 256
    (tmp_path / FILE).write_text('{"Tesla T4": 4}')
    assert read_limit(config, CPU) == 64
    (tmp_path / FILE).write_text("torn")
    assert read_limit(config, CPU) == 64


@pytest.mark.parametrize(("sizes", "together", "expected"), [([8], 1, 4), ([9, 8], 1, 5), ([3], 2, 2), ([2], 1, 1)])
def test_halves(sizes: list[int], together: int, expected: int) -> None:
    assert halve([micro_batch(size) for size in sizes], CPU, together=together) == expected


@pytest.mark.parametrize(("sizes", "together"), [([1], 1), ([0], 1), ([], 1), ([2], 2)])
def test_what_cannot_be_halved(sizes: list[int], together: int) -> None:
    with pytest.raises(NoRoomError, match="GPU with more memory"):
        halve([micro_batch(size) for size in sizes], CPU, together=together)


def micro_batch(size: int) -> MicroBatch:
    return MicroBatch(worker=0, piece=Piece(3, 3 + size), first=True, last=True)
