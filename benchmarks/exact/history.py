"""The events of one history: machines that come, leave with notice or are killed, and when. Pure; all from the seed.

    history = draw(17, agents=True, virtual=False, recovery="memory")       # the same for the same arguments, always

An event is due when the job has trained for `steps` steps as it was left by the one before, or, to hit a job that is still
recovering, `seconds` after the one before.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["join", "notice", "kill-machine", "kill-rank-zero", "kill-process", "kill-all"]
Recovery = Literal["memory", "restart"]
RECOVERIES: tuple[Recovery, ...] = ("memory", "restart")
KILLS: tuple[Kind, ...] = ("kill-machine", "kill-rank-zero", "kill-process", "kill-all")
LARGEST_WORLD = 8
SHORTEST, LONGEST = 3, 5  # events
_HURRIED = 0.25  # of the events come while the job may still recover from the last one
_HURRY_SECONDS = (0.1, 2.5)
_STEPS = (2, 8)
_PROCESSES = (1, 1, 1, 2, 2, 3, 4)  # of a machine


@dataclass(frozen=True, kw_only=True)
class Event:
    """`target` chooses among the machines that live: its remainder by their number. `machines` start (join, kill-all)."""

    kind: Kind
    steps: int = 0
    seconds: float | None = None
    target: int = 0
    machines: int = 1


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A training: a program of the trainer's with flags of its own, and which data it reads."""

    name: str
    program: tuple[str, ...]
    data: Literal["words", "pictures"]
    global_batch: int
    lr: float


# A sample's part of the gradient depends on no other sample and on no random draw, so any split of a step into shares comes to
# the same but for the order of sums. 13 divides neither into equal shares nor the data into whole steps.
# The order of sums is seen more with every step: at a rate of 0.001 a loss of two undisturbed runs differs by 0.0009 after 181.
GPT = Shape(name="gpt", program=("trainer.text.train", "--size", "tiny"), data="words", global_batch=13, lr=0.0003)
# The statistics of BatchNorm are those of a share, and dropout is drawn for a share: what these learn depends on the world size,
# unless the workers are virtual, and then it must be the same bits, buffers included.
_PICTURES = ("trainer", "--image-size", "32", "--arch")
BATCHNORM = Shape(name="shufflenet", program=(*_PICTURES, "shufflenet_v2_x0_5"), data="pictures", global_batch=28, lr=0.01)
DROPOUT = Shape(name="squeezenet", program=(*_PICTURES, "squeezenet1_1"), data="pictures", global_batch=24, lr=0.005)
VIRTUAL_SHAPES = (BATCHNORM, DROPOUT)


@dataclass(frozen=True, kw_only=True)
class History:
    """`agents`: every machine is a launcher started from nothing; else one forked from a process that has torch loaded.
    `recovery`: survivors keep their processes and their state, or all start anew from a checkpoint."""

    seed: int
    recovery: Recovery
    agents: bool
    virtual: bool
    shape: Shape
    processes: int  # of each machine
    machines: int  # at the start
    events: tuple[Event, ...]

    @property
    def name(self) -> str:
        return f"exact-{self.seed}"

    @property
    def largest(self) -> int:
        """Machines at once."""
        return LARGEST_WORLD // self.processes

    def sizes(self) -> list[int]:
        """Numbers of machines at the start and after each event."""
        sizes = [self.machines]
        for event in self.events:
            sizes.append(after(event, sizes[-1]))
        return sizes


def after(event: Event, machines: int) -> int:
    """The number of machines after the event. A machine starts its processes again where one of them is killed."""
    if event.kind == "join":
        return machines + event.machines
    if event.kind == "kill-all":
        return event.machines
    return machines if event.kind == "kill-process" else machines - 1


def draw(seed: int, *, agents: bool, virtual: bool, recovery: Recovery, events: int | None = None) -> History:
    """Of as many `events`, or of three to five."""
    rng = random.Random(f"exact {seed}")  # noqa: S311 - to be repeated
    processes = rng.choice(_PROCESSES)
    largest = LARGEST_WORLD // processes
    started = machines = rng.randint(1, min(4, largest))
    few, drawn = rng.randint(SHORTEST, LONGEST), list[Event]()
    for number in range(events or few):
        drawn.append(_event(rng, machines, largest, first=number == 0))
        machines = after(drawn[-1], machines)
    return History(
        seed=seed,
        recovery=recovery,
        agents=agents,
        virtual=virtual,
        shape=rng.choice(VIRTUAL_SHAPES) if virtual else GPT,
        processes=processes,
        machines=started,
        events=tuple(drawn),
    )


def draw_recovery(seed: int) -> Recovery:
    """For a run that plays both."""
    return random.Random(f"recovery {seed}").choice(RECOVERIES)  # noqa: S311 - to be repeated


def _event(rng: random.Random, machines: int, largest: int, *, first: bool) -> Event:
    kind = rng.choices(*zip(*_choices(machines, largest), strict=True))[0]
    hurried = not first and rng.random() < _HURRIED
    room = largest - machines
    return Event(
        kind=kind,
        steps=rng.randint(*_STEPS),
        seconds=round(rng.uniform(*_HURRY_SECONDS), 2) if hurried else None,
        target=rng.randrange(60),
        machines=rng.randint(1, min(3, room)) if kind == "join" else rng.randint(1, min(2, largest)),
    )


def _choices(machines: int, largest: int) -> Sequence[tuple[Kind, int]]:
    """Events that may happen, with their weights. The job never loses its last machine but by kill-all, which starts others."""
    found: list[tuple[Kind, int]] = [("kill-process", 1), ("kill-all", 1)]
    if machines < largest:
        found.append(("join", 4))
    if machines > 1:
        found += [("notice", 4), ("kill-machine", 2), ("kill-rank-zero", 2)]
    return found
