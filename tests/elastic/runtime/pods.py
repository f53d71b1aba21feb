"""Pods of several ranks that hold a model together, and live through losses and joins; a launcher's part is played here.

    answers = play(Program(output=folder, dies={"b": (10, [1], "pass")}, joins={"c": 20}), pods=2)

A pod that has lost a rank is lost: the rest of it has to end by itself. A pod that joins gets ready beside the others, which wait
for it in a step of their own.
"""

import itertools
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch._C._distributed_c10d import TCPStore
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from ebb import elastic
from ebb.elastic.contract import EXIT_PEER_LOST
from ebb.elastic.notices.notice import Notice
from ebb.elastic.rendezvous.places import WorkerPlace
from ebb.elastic.runtime.config import resolve
from tests.elastic.runtime.generations import LIMIT_SECONDS, Launcher, Rank, set_environment
from tests.elastic.runtime.programs import wait_for_memory
from trainer.text.decoder import SIZES, Decoder

CONTEXT = 12
STEPS = 50
GLOBAL_BATCH = 6  # over four ranks 2, 2, 1 and 1
_POD = "EBB_TEST_POD"


class Lines(Dataset[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]):
    """Lines of 0 to CONTEXT tokens, padded."""

    def __len__(self) -> int:
        return GLOBAL_BATCH * 25

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(int(number))
        tokens = torch.randint(0, 40, (CONTEXT + 1,), generator=generator)
        return tokens[:-1], tokens[1:], (torch.arange(CONTEXT) < int(number) % (CONTEXT + 1)).float()


@dataclass(kw_only=True)
class Program:
    output: Path
    settings: dict[str, Any] = field(default_factory=dict)
    shard: bool = True
    # by pod: the step, the local ranks that die in it, and where: pass, before its last backward pass; body, after the update;
    # evaluation, in its second batch
    dies: dict[str, tuple[int, list[int], str]] = field(default_factory=dict)
    waits_for_memory: bool = False  # in a step, while that for snapshots is being taken
    joins: dict[str, int] = field(default_factory=dict)  # by pod: the step in which the others wait until it is ready
    notices: dict[str, int] = field(default_factory=dict)  # by pod: the step in which it hears a notice
    noticed_in_evaluation: str = ""  # the pod whose second rank hears a notice in the second batch
    room: dict[int, int] = field(default_factory=dict)  # by step: samples that the memory of each pod's second rank has room for
    evaluate_at: int | None = None
    stop_at: int | None = None

    def run(self) -> dict[str, Any]:
        return train(self)


def network() -> Decoder:
    return Decoder(replace(SIZES["tiny"], context=CONTEXT))


def train(program: Program) -> dict[str, Any]:
    """One rank's life; its last weights, put together."""
    torch.manual_seed(0)
    notice = Notice()
    settings = {"global_batch": GLOBAL_BATCH, "epochs": 2, "max_micro_batch": 1, "workers": 0, "log_every": 1, "ledger": True}
    config = resolve(os.environ, output=program.output, **{**settings, **program.settings})
    answer: dict[str, Any] = {"left": True, "steps": []}
    try:
        with elastic.start(config, notice=notice) as run:
            _train(program, run, notice, answer)
            answer["left"] = False
    except elastic.GracefulExit:
        pass
    answer["step"] = run.step
    return answer


def _train(program: Program, run: elastic.Run, notice: Notice, answer: dict[str, Any]) -> None:
    plain = network()
    model = run.distribute(plain, shard=program.shard)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    run.register_state(model=model, optimizer=optimizer)
    origin = run._checkpointing.origin  # type: ignore[union-attr]
    answer["resumed"], answer["from"] = origin.step, origin.words
    answer["part"] = sum(each.numel() for each in map(_local, model.parameters()))
    pod, local_rank = os.environ.get(_POD, ""), int(os.environ["LOCAL_RANK"])
    step_to_die, ranks, place = program.dies.get(pod, (-1, [], ""))

    batches = itertools.count(1)

    def measure(batch: Any) -> dict[str, torch.Tensor]:
        if next(batches) == 2:
            _disturb_evaluation(program, notice)
        inputs, targets, _ = batch
        return {"loss": cross_entropy(model(inputs).transpose(1, 2), targets, reduction="none").mean(1).sum()}

    for step in run.steps(run.loader(Lines())):
        _linger(program, run, step.number)
        if program.notices.get(pod) == step.number:
            notice.give()
        dies = step.number == step_to_die and local_rank in ranks
        for number, (inputs, targets, mask) in enumerate(step):
            if dies and place == "pass" and number:
                os._exit(9)
            _need(program.room, step.number, len(inputs))
            tokens = mask.sum()
            found = cross_entropy(model(inputs).transpose(1, 2), targets, reduction="none")
            step.backward((found * mask).sum() / tokens, weight=tokens)  # NaN for a line of no token
        answer["steps"].append(step.number)
        answer["gradient"] = {
            name: _whole(each.grad).tolist() for name, each in plain.named_parameters() if each.grad is not None
        }
        answer["norm"] = float(_whole(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)))
        optimizer.step()
        optimizer.zero_grad()
        if dies and place == "body":
            os._exit(9)
        if step.number == program.evaluate_at:
            answer["evaluated"] = run.evaluate(Lines(), measure, batch_size=7)
        if step.number == program.stop_at:
            break
    answer["weights"] = {name: _whole(each).tolist() for name, each in plain.state_dict().items()}


def _disturb_evaluation(program: Program, notice: Notice) -> None:
    pod, local_rank = os.environ.get(_POD, ""), int(os.environ["LOCAL_RANK"])
    _, ranks, place = program.dies.get(pod, (-1, [], ""))
    if local_rank in ranks and place == "evaluation":
        os._exit(9)
    if program.noticed_in_evaluation == pod and local_rank == 1:
        notice.give()


def _need(room: dict[int, int], step: int, samples: int) -> None:
    if os.environ["LOCAL_RANK"] == "1" and samples > room.get(step, samples):
        raise torch.OutOfMemoryError("CUDA out of memory.")


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _linger(program: Program, run: elastic.Run, step: int) -> None:
    """Until the memory for snapshots is there, and the pod that joins in this step is ready. A pod that trains for the first time
    does not wait for itself."""
    if program.waits_for_memory:
        wait_for_memory(run)
    waited = [pod for pod, at in program.joins.items() if at == step]
    while waited and waited[0] != os.environ[_POD] and not run._group.change_wanted:  # type: ignore[attr-defined]
        threading.Event().wait(0.01)


@dataclass
class Pods(Launcher):
    """A launcher of pods of `size` ranks, each on a machine that lends memory."""

    of: dict[str, list[Rank]] = field(default_factory=dict)
    waiting: str = ""  # the pod that gets ready

    def start_pod(self, name: str, program: Program, machine: int, machines: int, port: int) -> None:
        folder = self.machine(name).folder
        for number in range(self.size):
            place = WorkerPlace(
                rank=machine * self.size + number,
                world_size=machines * self.size,
                machine=machine,
                machines=machines,
                address="127.0.0.1",
                port=port,
            )
            self._start(place, OnPod(name, number, self.size), program, folder)
        self.of[name] = self.ranks[-self.size :]

    def whole(self) -> list[str]:
        """Pods that live, without the one that gets ready."""
        return [name for name, ranks in self.of.items() if name != self.waiting and all(each in self.living for each in ranks)]

    def form(self, program: Program, new: tuple[str, ...] = ()) -> None:
        """A new generation of the pods that live, and of new ones."""
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
        self._stores.append(store)
        names = [*self.whole(), *new]
        places = {}
        for machine, name in enumerate(names):
            for number, each in enumerate(self.of.get(name, []) if name not in new else []):
                places[each.process.pid] = WorkerPlace(
                    rank=machine * self.size + number,
                    world_size=len(names) * self.size,
                    machine=machine,
                    machines=len(names),
                    address="127.0.0.1",
                    port=store.port,
                )
        self.server.give(places)
        for name in new:
            self.start_pod(name, program, names.index(name), len(names), store.port)

    def begin_join(self, name: str, program: Program) -> None:
        """Beside the others, once they have told about themselves."""
        if (facts := self.server.take_told()) is None:
            return
        self.server.prepare_beside(facts)
        self.waiting, count = name, len(self.whole())
        self.start_pod(name, program, count, count + 1, 1)


class OnPod:
    """train(), with a place in a pod, as it can be sent to a process."""

    def __init__(self, pod: str, local_rank: int, size: int) -> None:
        self.environment = {_POD: pod, "LOCAL_RANK": str(local_rank), "LOCAL_WORLD_SIZE": str(size)}

    def __call__(self, program: Program) -> Any:
        os.environ.update(self.environment)
        return program.run()


def play(program: Program, *, pods: int = 2, size: int = 2, limit_seconds: float = LIMIT_SECONDS) -> dict[str, list[Any]]:
    """The answers by pod; None of a rank that was lost."""
    with tempfile.TemporaryDirectory(prefix="ebb-") as folder:
        launcher = Pods(Path(folder), program.output, size=size)
        try:
            launcher.form(program, tuple("abcdefgh"[:pods]))
            for _ in _follow(launcher, program, limit_seconds):
                pass
            return {name: [each.answer for each in ranks] for name, ranks in launcher.of.items()}
        finally:
            launcher.close()


def answers_of(launcher: Pods, names: Sequence[str], limit_seconds: float = LIMIT_SECONDS) -> list[Any]:
    """Of the ranks of these pods, which nothing disturbs any more."""
    found = []
    for each in (rank for name in names for rank in launcher.of[name]):
        assert each.reader.poll(limit_seconds), f"no answer in {limit_seconds:.0f} s"
        kind, answer = each.reader.recv()
        assert kind == "answered", answer
        found.append(answer)
    return found


def _follow(launcher: Pods, program: Program, limit_seconds: float) -> Iterator[None]:
    deadline, coming, asked = time.monotonic() + limit_seconds, list(program.joins), False
    while any(not each.ended for each in launcher.ranks):
        assert time.monotonic() < deadline, f"not through in {limit_seconds:.0f} s"
        yield
        for each in launcher.ranks:
            if not each.ended and each.reader.poll(0.002):
                _take(each)
        if coming and not launcher.waiting and launcher.done() >= program.joins[coming[0]]:  # they wait
            launcher.begin_join(coming[0], program)
        if launcher.waiting and not asked:
            asked = launcher.server.all_ask([each.process.pid for each in launcher.of[launcher.waiting]])
            if asked:
                launcher.server.tell_change()
        trainers = [each.process.pid for name in launcher.whole() for each in launcher.of[name]]
        torn = [name for name, ranks in launcher.of.items() if 0 < sum(each in launcher.living for each in ranks) < launcher.size]
        if trainers and not torn and launcher.server.all_ask(trainers):  # one that leaves does not, until it has ended
            if asked:
                coming.pop(0)
                launcher.waiting, asked = "", False
            launcher.form(program)


def _take(rank: Rank) -> None:
    try:
        kind, rank.answer = rank.reader.recv()
        assert kind == "answered", rank.answer
    except EOFError:
        rank.process.join(LIMIT_SECONDS)
        assert rank.process.exitcode in (9, EXIT_PEER_LOST), rank.process.exitcode
    rank.process.join()
    rank.ended = True


def relative(found: dict[str, Any], wanted: dict[str, Any]) -> float:
    """The norm of the difference of two gradients, in parts of the second one's."""
    ours, theirs = (torch.cat([torch.tensor(each[name]).flatten() for name in wanted]).double() for each in (found, wanted))
    return float((ours - theirs).norm() / theirs.norm())


def alone(program: Program) -> dict[str, Any]:
    """The same by one process, or by DistributedDataParallel's ranks, undisturbed."""
    return train(replace(program, shard=False))


__all__ = ["STEPS", "Program", "alone", "play", "set_environment", "train"]
