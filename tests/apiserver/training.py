"""What a worker says of its training: the page of metrics that the controller reads at the pod's address.

async with training(pod_ip, step=100) as worker: worker.generation = 2; worker.text = "..."
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from ebb.api.contract import METRICS_PORT


@dataclass
class Training:
    """Ten steps a second, unless `moves` is false."""

    first: int = 0
    moves: bool = True
    generation: int = 1
    checkpoint: int | None = None
    asked: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def step(self) -> int:
        return self.first + (int((time.monotonic() - self.began) * 10) if self.moves else 0)

    @property
    def page(self) -> str:
        checkpoint = "" if self.checkpoint is None else f"ebb_checkpoint_step {self.checkpoint}\n"
        return (
            f"ebb_step {self.step}\nebb_total_steps 100000\nebb_epoch 1\nebb_loss 0.5\nebb_world_size 1\n"
            f"ebb_generation {self.generation}\nebb_samples_per_second 100\n{checkpoint}"
        )


@asynccontextmanager
async def training(address: str, **first: int) -> AsyncIterator[Training]:
    """A worker's page at a pod's address; all of 127.0.0.0/8 is this machine."""
    one = Training(**first)  # type: ignore[arg-type]

    async def metrics(_: web.Request) -> web.Response:
        one.asked += 1
        return web.Response(text=one.page)

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, address, METRICS_PORT).start()
        yield one
    finally:
        await runner.cleanup()
