"""What a fault needs: machines, controllers that may be hurt, each with a line of its own to the API server.

async with stage(made, folder) as on:
    first = await on.controller("first")             # .process, .line
    second = await on.controller("second", leads=False)
"""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.apiserver.controller import Process
from tests.apiserver.machines import Machines, machines
from tests.apiserver.place import Place
from tests.apiserver.plane import Made, ended
from tests.apiserver.proxy import AFTER, BEFORE, Line, Tripwire, proxy

_numbers = itertools.count(1)
# A third of the real limits or less, so that the short form of a fault is short; benchmarks/faults has the real ones. The lead is
# held for as long as it ships: on a busy machine it would pass by itself.
SHORT: Mapping[str, float] = {
    "ebb.controller.reconciler.sizing.RESTART_SECONDS": 0.3,
    "ebb.kube.reflector.SERVER_SECONDS": 4,
    "ebb.kube.reflector.LATE_SECONDS": 1.0,
    "ebb.kube.reflector.LAST_RETRY_SECONDS": 2.0,
    "ebb.controller.workqueue.LAST_RETRY_SECONDS": 3.0,
}
REAL: Mapping[str, float] = {
    "ebb.controller.reconciler.sizing.RESTART_SECONDS": 0.3
}  # not a limit of a fault, and it is waited for often


@dataclass
class Actor:
    """One controller."""

    process: Process
    line: Line

    async def killed_at(self, writes: int, when: str, seconds: float) -> bool:
        """kill -9 at one of its next writes; whether there was one in time. It is dead afterwards in any case."""
        self.line.tripwire = Tripwire(writes, when, self.process.kill)
        deadline = time.monotonic() + seconds
        while self.process.alive and time.monotonic() < deadline:  # noqa: ASYNC110 - another process has no event for us
            await asyncio.sleep(0.01)
        hit = not self.process.alive
        self.line.tripwire = None
        self.process.kill()
        return hit


class Stage:
    """See the module's docstring."""

    def __init__(self, made: Made, ours: Machines, folder: Path, at_last: AsyncExitStack, limits: Mapping[str, float]) -> None:
        self.made, self.machines, self.folder, self.limits = made, ours, folder, limits
        self.place = Place(made, ours)
        self._at_last = at_last
        # How long a job may take to get over what happened to it: a watch that went silent is noticed after its whole time, and a
        # controller that is killed every few seconds starts for as long as it lives where others use the processor, too.
        self.patience_seconds = 120.0

    async def controller(
        self, name: str, *, leads: bool = True, supervised: bool = False, token_file: str = "", **settings: float
    ) -> Actor:
        """Start one; it is ended with the stage. `supervised`: somebody starts it again when it ends by itself."""
        line = await self._at_last.enter_async_context(proxy(self.made.processes.server, self.made.processes.trust()))
        token = await self.made.token()
        process = Process(self.folder, name, line.url, token, {**self.limits, **settings}, account=token_file)
        self._at_last.callback(process.kill)
        await process.start(leads=leads)
        if supervised:
            self._at_last.push_async_callback(ended, asyncio.create_task(process.supervise()))
        return Actor(process, line)


@asynccontextmanager
async def stage(made: Made, folder: Path, limits: Mapping[str, float] = SHORT) -> AsyncIterator[Stage]:
    """A stage until the block ends."""
    name = f"faults-{next(_numbers)}"
    await made.namespace(name)
    async with AsyncExitStack() as at_last:
        ours = await at_last.enter_async_context(machines(made, name))
        one = Stage(made, ours, folder, at_last, limits)
        at_last.push_async_callback(one.place.clear)
        await made.release_lease()
        yield one


def anywhere(rng: random.Random) -> tuple[int, str]:
    """A point of a controller's work: one of its next writes, before the API server has it or when nobody was told."""
    return rng.randint(1, 8), rng.choice([BEFORE, AFTER])
