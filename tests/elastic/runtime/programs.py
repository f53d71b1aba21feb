"""Programs that tests run on one rank or several: small ones, with everything in them that could go wrong.

`Points` draws random numbers for each sample, `network` has BatchNorm and dropout: what depends on who computes shows.
"""

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from ebb import elastic
from ebb.elastic.notices.notice import Notice
from ebb.elastic.runtime import evaluation, loop_setup, transfer
from ebb.elastic.runtime.config import resolve
from ebb.elastic.runtime.gradients import VirtualGradients
from ebb.elastic.runtime.loop import Loop
from ebb.elastic.runtime.members import Members
from ebb.elastic.runtime.process_group import PeerLostError
from ebb.elastic.runtime.report import weights_sha256

CLASSES = 3


class Points(Dataset[dict[str, torch.Tensor]]):
    """Noise around one point per class; the noise is drawn when a sample is read."""

    def __init__(self, size: int = 37) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        if not 0 <= number < self.size:
            raise IndexError(number)
        label = number % CLASSES
        return {
            "point": torch.full((4,), float(label)) + torch.rand(4),
            "label": torch.tensor(label),
            "number": torch.tensor(number),
        }


def network(*, plain: bool = False) -> nn.Module:
    between = [] if plain else [nn.BatchNorm1d(8), nn.Dropout(0.2)]
    return nn.Sequential(nn.Linear(4, 8), *between, nn.Tanh(), nn.Linear(8, CLASSES))


def mean_over_tokens(scores: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """NaN where there are none."""
    tokens = batch["label"]
    return (cross_entropy(scores, batch["label"], reduction="none") * tokens).sum() / tokens.sum()


@dataclass(kw_only=True)
class Program:
    """What one rank does; plain values, so that it can be sent to a process."""

    output: Path
    settings: dict[str, Any] = field(default_factory=dict)
    size: int = 37
    optimizer: str = "sgd"
    schedule: str = "none"
    plain: bool = False
    scaled: bool = False
    weighted: bool = False  # a sample has as many tokens as its label says, perhaps none
    leave_at: int | None = None  # the step in whose body rank `leaver` hears a notice
    leaver: int = 0
    vanish_at: int | None = None  # the step in which rank `leaver` is gone
    vanish_in: str = "pass"  # pass: before its backward pass; body: after the optimizer's step; hang: it stays, and does nothing
    evaluate_first: bool = False  # 40 points, before the first step
    lost_before: str = ""  # a phase before the first step (PHASES) at whose beginning rank `leaver` is gone
    deaf_before: str = ""  # one in which it alone does not get what all ranks find, and stands there with weights of its own
    deaf_at: int | None = None  # the step of which rank `leaver` does not get the sum that the others get
    build_until: int | None = None  # a newcomer needs for its model as long as the others for so many steps
    waits_for_memory: bool = False  # in a step, while that for snapshots is being taken
    linger_at: int | None = None  # the step in which the first generation waits until a newcomer is ready: it must not be late
    dies_giving: bool = False  # rank `leaver`, in the middle of giving its state to a newcomer
    dies_taking: bool = False  # rank `leaver`, a newcomer, in the middle of taking the others' state
    dies_in: str = ""  # a part of a change (a method of Members) in which rank `leaver` dies
    disturbed_after: str = ""  # the last step: the part of the end (ENDS) in which rank `leaver` dies, or alone sees a loss
    clock_jumps: float = 0.0  # seconds by which rank `leaver`'s clock is set in the third step
    stands_at: int | None = None  # the step after which rank `leaver` stands still (SIGSTOP), in the pause before the next one
    lag: int | None = None
    score_at: dict[int, float] = field(default_factory=dict)
    break_at: int | None = None
    evaluate_at: int | None = None  # the step at whose end 40 points are evaluated, one by one
    evaluate_again_at: int | None = None
    disturbed_by: str = ""  # in that evaluation rank `leaver` hears a notice, or vanishes; the others wait until they know
    room: int = 0  # samples at once for which rank `leaver` has memory; 0: for any number
    short_from: int = 0  # the first step in which that is so
    short_in: str = "forward"  # where more of them run out: forward, loss, or backward with some of the gradients there already
    guarded: bool = True  # by step.within_memory()
    other_weights: str = ""  # evaluated are others: "restored" afterwards in any case, or "left" there when it is disturbed


SCHEDULES: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "step": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5),
    "multistep": lambda optimizer: torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 3, 7], 0.5),
    "cosine": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12),
    "onecycle": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=40),
    "plateau": lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1),
    "lambda": lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    "sequence": lambda optimizer: torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [torch.optim.lr_scheduler.ConstantLR(optimizer, 0.1, 3), torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)],
        milestones=[3],
    ),
    "restarts": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 4),
}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, 0.01),
    "fused": lambda parameters: torch.optim.Adam(parameters, 0.01, fused=True),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, 0.01),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, 0.1),
}


def train(program: Program) -> dict[str, Any]:
    """One generation of one rank. `left`: it ended at a boundary because of a notice."""
    notice = Notice()
    settings = {"global_batch": 10, "epochs": 3, "workers": 0, "log_every": 1, "ledger": True, **program.settings}
    config = resolve(os.environ, output=program.output, **settings)
    _disturb_meeting(program, int(os.environ.get("RANK", "0")))
    answer: dict[str, Any] = {"left": False, "seen": [], "rates": [], "steps": []}
    with contextlib.suppress(elastic.GracefulExit), elastic.start(config, notice=notice) as run:
        answer["left"] = True
        _steps(program, run, notice, answer)
        answer["left"] = False
    answer["step"] = run.step
    return answer


def _steps(program: Program, run: elastic.Run, notice: Notice, answer: dict[str, Any]) -> None:
    _disturb_before(program, run, "weights")
    model = run.distribute(network(plain=program.plain))
    optimizer = OPTIMIZERS[program.optimizer](model.parameters())
    schedule = SCHEDULES[program.schedule](optimizer) if program.schedule != "none" else None
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3) if program.scaled else None
    others: dict[str, Any] = {"schedule": schedule, "scaler": scaler}
    _disturb_before(program, run, "checkpoint")
    run.register_state(model=model, optimizer=optimizer, **{name: each for name, each in others.items() if each is not None})
    answer["went_first"] = _go_first(program, run)
    _spoil(program, run, model)
    _disturb_before(program, run, "data")
    _arrange(program, run, model)
    if run.rank == program.leaver and program.disturbed_after:
        ENDS[program.disturbed_after]()
    if program.evaluate_first:
        answer["first"] = run.evaluate(Points(40), lambda batch: {"loss": cross_entropy(model(batch["point"]), batch["label"])})
    for step in run.steps(run.loader(Points(program.size))):
        mine = run.rank == program.leaver
        if run.evaluation_pending:
            evaluate(program, run, model, notice, answer)
        if mine and step.number == program.leave_at:
            notice.give()
        _linger(program, run, step, notice)
        for batch in step:
            if mine and step.number == program.vanish_at and program.vanish_in != "body":
                _vanish(program)
            with _guard(program, step):
                answer["seen"].append(sorted(set(batch["number"].tolist())))
                step.add(right=float(len(batch["number"])))
                scores = model(batch["point"])
                _need_room(program, run, len(scores), "loss")
                weight = batch["label"].sum() if program.weighted else None
                loss = cross_entropy(scores, batch["label"]) if weight is None else mean_over_tokens(scores, batch)
                step.backward(loss, weight=weight, scaler=scaler)
        answer["steps"].append(step.number)
        answer["gradient"] = [each.grad.tolist() for each in model.parameters() if each.grad is not None]
        answer["rates"].append(optimizer.param_groups[0]["lr"])
        _update(optimizer, scaler)
        if mine and step.number == program.vanish_at:
            _vanish(program)
        optimizer.zero_grad()
        _schedule(program, schedule)
        _judge(program, run, model, notice, answer)
        if step.number == program.break_at:
            break
    answer["owes"] = run.evaluation_pending
    answer["weights"] = weights_sha256(getattr(model, "module", model))


def _schedule(program: Program, schedule: Any) -> None:
    if schedule is not None:
        schedule.step(*([1.0] if program.schedule == "plateau" else []))


PHASES = ("start", "meeting", "weights", "checkpoint", "first", "data")


def _once(program: Program) -> bool:
    """True in the first process that asks, of all generations."""
    try:
        (program.output / "disturbed").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _disturb_meeting(program: Program, rank: int) -> None:
    if rank == program.leaver and program.lost_before == "start" and _once(program):
        os._exit(9)
    if rank == program.leaver and program.lost_before == "meeting" and _once(program):
        Members.standings = lambda *_: os._exit(9)  # type: ignore[method-assign]


def _disturb_before(program: Program, run: elastic.Run, phase: str) -> None:
    if run.rank != program.leaver:
        return
    if program.lost_before == phase and _once(program):
        os._exit(9)
    if program.deaf_before == phase and _once(program):
        run._answers = Deaf(run._answers)


class Deaf(list[Any]):
    """Answers of which the next one comes to the other ranks alone."""

    def append(self, _: Any) -> None:
        raise PeerLostError("deaf")


def _go_first(program: Program, run: elastic.Run) -> bool:
    """True for the one that does."""
    if program.lost_before != "first":
        return False
    with run.rank_zero_first():
        if run.rank == program.leaver and _once(program):
            os._exit(9)
        went_first = not (program.output / "made").exists()
        (program.output / "made").touch()
    return went_first


def _spoil(program: Program, run: elastic.Run, model: nn.Module) -> None:
    """The weights of a rank that has to take another one's."""
    if program.deaf_before and run._inherited is not None:
        for each in model.parameters():
            each.data.zero_()


def steps_done(output: Path) -> int:
    """As rank 0 has written them down; 0 before the first one."""
    try:
        return int((output / "last-step").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def _stand_still(notice: Notice) -> None:
    """In the next pause between two steps, until somebody sends SIGCONT."""

    def wait(seconds: float) -> None:
        del notice.wait
        os.kill(os.getpid(), signal.SIGSTOP)
        notice.wait(seconds)

    vars(notice)["wait"] = wait


def _linger(program: Program, run: elastic.Run, step: elastic.Step, notice: Notice) -> None:
    if run.rank == program.leaver and step.number == program.stands_at:
        _stand_still(notice)
    if program.waits_for_memory:
        wait_for_memory(run)
    while step.number == program.linger_at and run.generation == 1 and not run._group.change_wanted:  # type: ignore[attr-defined]  # of Members
        threading.Event().wait(0.01)  # for another process


def wait_for_memory(run: elastic.Run) -> None:
    """For snapshots. The first boundary only begins to take it; a busy machine may need more steps for that than a test has."""
    snapshots = run._loop.snapshots  # type: ignore[union-attr]  # the training has begun
    while snapshots is not None and snapshots.due == -math.inf:
        threading.Event().wait(0.01)  # for a thread that says nothing when it is through


def _die_in_transfer() -> None:
    """With the outline of the state on its way, or there, and none of its tensors."""

    def move(self: transfer._Pieces, tensor: torch.Tensor) -> None:
        os._exit(9)

    transfer._Pieces.move = move  # type: ignore[method-assign]


def _set_clock(run: elastic.Run, seconds: float) -> None:
    """From the third step on, as when a machine's is put right. Nobody can set the clock that only runs on."""
    true = time.time
    vars(time)["time"] = lambda: true() + (seconds if run.step >= 3 else 0.0)


def _deafen(run: elastic.Run, number: int) -> None:
    """As for a rank that loses the others between two of a sum's messages."""
    plain = VirtualGradients.share

    def share(gradients: VirtualGradients, step_size: int) -> None:
        plain(gradients, step_size)
        if run.step == number and run.world_size > 1:
            VirtualGradients.share = plain  # type: ignore[method-assign]
            raise PeerLostError("deaf")

    VirtualGradients.share = share  # type: ignore[assignment, method-assign]


def _arrange(program: Program, run: elastic.Run, model: nn.Module) -> None:
    """Bring about what a GPU, a large model or chance does otherwise."""
    if program.room:
        _limit_room(program, run, model)
    if program.build_until is not None and (done := steps_done(program.output)):
        while steps_done(program.output) < min(done + program.build_until, program.linger_at or 11):
            threading.Event().wait(0.01)  # for other processes' steps
    if run.rank == program.leaver and program.deaf_at is not None:
        _deafen(run, program.deaf_at)
    if run.rank == program.leaver and program.dies_giving:
        _die_in_transfer()
    if run.rank == program.leaver and program.dies_taking:
        _die_in_transfer()
    if run.rank == program.leaver and program.dies_in:
        setattr(Members, program.dies_in, lambda *_, **__: os._exit(9))
    if run.rank == program.leaver and program.clock_jumps:
        _set_clock(run, program.clock_jumps)
    if program.lag is not None:
        vars(loop_setup)["Loop"] = lambda **parts: Loop(**{**parts, "lag": program.lag})
    vars(evaluation)["_LOOK_SECONDS"] = 0.0  # how far a rank comes before it hears of another one's notice


def _at_end(kind: type, method: str, disturb: Callable[[Any], None], *, before: bool = True) -> Callable[[], None]:
    """In its first call after the last step."""

    def arrange() -> None:
        whole, left = getattr(kind, method), [disturb]

        def disturbed(self: Any, **more: Any) -> None:
            loop = self._loop if isinstance(self, elastic.Run) else self
            ended = loop is not None and loop.ended
            if ended and left and before:
                left.pop()(self)
            whole(self, **more)
            if ended and left:
                left.pop()(self)

        setattr(kind, method, disturbed)

    return arrange


def _die(_: object) -> None:
    os._exit(9)


def _lose(_: object) -> None:
    raise PeerLostError("deaf")


def _lose_when_alone(run: elastic.Run) -> None:
    """Not before the others are through: where this one is sooner, it cuts them off."""
    assert isinstance(run._group, Members)
    while not run._group.is_left:
        time.sleep(0.01)
    raise PeerLostError("deaf")


ENDS: dict[str, Callable[[], None]] = {
    "dies saving": _at_end(Loop, "save_now", _die),
    "dies finishing": _at_end(elastic.Run, "finish", _die),
    "dies in the last barrier": _at_end(elastic.Run, "finish", _die, before=False),
    "deaf when all have saved": _at_end(Loop, "save_now", _lose, before=False),
    "deaf when all have finished": _at_end(elastic.Run, "_finish_together", _lose_when_alone, before=False),
}


def _guard(program: Program, step: elastic.Step) -> contextlib.AbstractContextManager[None]:
    return step.within_memory() if program.guarded else contextlib.nullcontext()


def _need_room(program: Program, run: elastic.Run, samples: int, place: str) -> None:
    if program.short_in != place or run.rank != program.leaver or run.step < program.short_from:
        return
    if 0 < program.room < samples:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB")


def _limit_room(program: Program, run: elastic.Run, model: nn.Module) -> None:
    """As on a GPU: after some layers, whose buffers have changed, or after some of the gradients."""
    first, *_, last = getattr(model, "module", model).children()
    seen = [0]

    def after(_module: nn.Module, _inputs: Any, scores: torch.Tensor) -> None:
        seen[0] = len(scores)
        _need_room(program, run, seen[0], "forward")

    def at_last(_gradient: torch.Tensor) -> None:
        _need_room(program, run, seen[0], "backward")

    last.register_forward_hook(after)
    assert isinstance(first, nn.Linear)
    first.weight.register_hook(at_last)  # type: ignore[no-untyped-call]


def _judge(program: Program, run: elastic.Run, model: nn.Module, notice: Notice, answer: dict[str, Any]) -> None:
    number = answer["steps"][-1]
    if number is not None and number in (program.evaluate_at, program.evaluate_again_at):
        evaluate(program, run, model, notice, answer)
    if number in program.score_at:
        run.best(program.score_at[number], accuracy=program.score_at[number])


def evaluate(program: Program, run: elastic.Run, model: nn.Module, notice: Notice, answer: dict[str, Any]) -> None:
    answer["batches"], generation = 0, run.generation

    def measure(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        answer["batches"] += 1
        if program.disturbed_by and answer["batches"] == 3 and run.generation == generation:  # and not when it is made again
            _disturb(program, run, notice)
        return {"loss": cross_entropy(model(batch["point"]), batch["label"])}

    with other_weights(program.other_weights, model):
        found = run.evaluate(Points(40), measure, batch_size=1)
    answer.setdefault("evaluated", {})[answer["steps"][-1] if answer["steps"] else "owed"] = found["loss"]
    run.best(-found["loss"], loss=found["loss"])


def _disturb(program: Program, run: elastic.Run, notice: Notice) -> None:
    if run.rank != program.leaver:
        while program.disturbed_by == "notice" and not run._group.told_to_leave():
            notice.wait(0.01)
    elif program.disturbed_by == "notice":
        notice.give()
    else:
        _vanish(program)


@contextlib.contextmanager
def other_weights(what: str, model: nn.Module) -> Iterator[None]:
    """As programs do that average: behind torch's back, through .data."""
    own = [each.detach().clone() for each in model.parameters()]
    well = False
    if what:
        for each in model.parameters():
            each.data.mul_(0.5)
    try:
        yield
        well = True
    finally:
        if well or what == "restored":
            for each, before in zip(model.parameters(), own, strict=True):
                each.data.copy_(before)


def _update(optimizer: torch.optim.Optimizer, scaler: Any) -> None:
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()


def _vanish(program: Program) -> None:
    if program.vanish_in == "hang":
        threading.Event().wait()
    os._exit(9)
