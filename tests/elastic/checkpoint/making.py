"""Checkpoints for the tests: small states, folders, fences, and what is in them."""

import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ebb.elastic.checkpoint import CheckpointFolder, FenceUnreachable, FileFence, Manifest
from ebb.elastic.checkpoint.files import Disk
from ebb.elastic.checkpoint.folder import Patience
from ebb.elastic.checkpoint.state import dump, load

IDENTITY = {"arch": "resnet18", "seed": 0}
MEMBERSHIP = "/ebb/run/generation"


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.when_asleep: Callable[[], None] = lambda: None

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.when_asleep()


def folder(
    output: Path, *, keep: int = 3, disk: Disk | None = None, owner: str | None = "", clock: Clock | None = None, **identity: Any
) -> CheckpointFolder:
    clock = clock or Clock()
    patience = Patience(seconds=15.0, now=clock, sleep=clock.sleep)
    return CheckpointFolder(output, keep=keep, identity={**IDENTITY, **identity}, owner=owner, disk=disk, patience=patience)


def state(step: int) -> dict[str, Any]:
    return {"state_dict": {"module.weight": torch.full((1000,), float(step))}, "step": step}


def claimed(output: Path, *, disk: Disk | None = None, **settings: Any) -> tuple[CheckpointFolder, FileFence]:
    """As rank 0 does at the start of a generation."""
    place = folder(output, disk=disk, **settings)
    fence = FileFence.claim(output, disk=disk)
    place.prepare(fence.generation)
    return place, fence


def save(output: Path, *steps: int, **settings: Any) -> CheckpointFolder:
    """A generation that commits these steps."""
    place, fence = claimed(output, **settings)
    for step in steps:
        place.save(dump(state(step)), fence, step=step)
    return place


def found_step(place: CheckpointFolder, named: str | None = None) -> int | None:
    """Of the newest checkpoint, as its content says it."""
    found = place.newest(named)
    if found is None:
        return None
    content = load(found.content)
    assert content["step"] == found.manifest.step
    assert torch.equal(content["state_dict"]["module.weight"], torch.full((1000,), float(content["step"])))
    return int(content["step"])


def files(output: Path) -> list[str]:
    return sorted(path.name for path in (output / "checkpoints").iterdir())


def both(*names: str) -> list[str]:
    return sorted(f"{name}{suffix}" for name in names for suffix in (".json", ".pt"))


class FakeRegister:
    """etcd's keys and transactions, in memory. `away`: nobody answers; `lose_answers`: a transaction happens, and then so."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[bytes, int]] = {}
        self.revision = 1
        self.away = False
        self.asked_in_vain = threading.Event()
        self.lose_answers = 0
        self.before_put: Callable[[], None] = lambda: None
        self._lock = threading.Lock()

    def put(self, key: str, value: bytes) -> None:
        self.revision += 1
        self.keys[key] = (value, self.revision)

    def form(self, generation: int, members: str = "a") -> None:
        """What the machines do when they meet."""
        self.put(MEMBERSHIP, b'{"number": %d, "members": ["%s"]}' % (generation, members.encode()))

    def forget(self) -> None:
        """etcd lost its data."""
        self.keys, self.revision = {}, 1

    def read(self, key: str) -> tuple[bytes, int] | None:
        if self.away:
            self.asked_in_vain.set()
            raise FenceUnreachable("etcd does not answer")
        return self.keys.get(key)

    def put_if(self, key: str, value: bytes, *, revision: int, guard: str, guard_value: bytes) -> bool:
        self.before_put()
        if self.away:
            raise FenceUnreachable("etcd does not answer")
        with self._lock:
            held, at = self.keys.get(guard, (None, 0))[0], self.keys.get(key, (b"", 0))[1]
            if held != guard_value or at != revision:
                return False
            self.put(key, value)
        if self.lose_answers:
            self.lose_answers -= 1
            raise FenceUnreachable("the answer was lost")
        return True


def manifest(generation: int, step: int, writer: int = 0, **facts: Any) -> Manifest:
    base = {"sha256": "0" * 64, "size_bytes": 1, "identity": IDENTITY, "folder": "", "written_at": 0.0}
    return Manifest(generation=generation, step=step, writer=writer, **{**base, **facts})


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file may grow past this: the kernel fails the write in the middle, as a full disk does. That goes for the test runner's
    own log too, so it is for one call only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
