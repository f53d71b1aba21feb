"""Output of the demo for people: one line per thing that happens, with the time, and never ten silent seconds.

Runs commands and shows their output as it comes. It decides nothing.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from devcluster.commands import dies_with_us

QUIET_SECONDS = 8.0  # the promise is 10 s
T = TypeVar("T")


class CommandFailed(Exception):
    """A command of the demo ended with an error; its own output, already shown, says why."""


class TookTooLong(Exception):
    """A thing that the demo waited for did not happen in time."""


@dataclass
class Story:
    """The story so far: (seconds since the start, sentence); printed as it grows, and again at the end."""

    started: float
    events: list[tuple[float, str]] = field(default_factory=list)
    spoke_at: float = 0.0

    def tell(self, sentence: str) -> None:
        """Something happened that belongs to the story."""
        self.events.append((time.time() - self.started, sentence))
        self.say(f"\033[1m{sentence}\033[0m")

    def say(self, text: str) -> None:
        """Progress: shown, not kept."""
        self.spoke_at = time.monotonic()
        print(f"[{time.time() - self.started:6.1f} s] {text}", flush=True)

    async def run(self, what: str, command: Sequence[str]) -> None:
        """Run a command and show its output line by line. Raises CommandFailed."""
        self.say(what)
        process = await asyncio.create_subprocess_exec(
            *dies_with_us(),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdout is not None
        try:
            async with self.heartbeat(what):
                async for line in process.stdout:
                    self.say("  " + line.decode(errors="replace").rstrip())
            if await process.wait() != 0:
                raise CommandFailed(f"{' '.join(command)} ended with exit code {process.returncode}")
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()

    def heartbeat(self, what: str) -> "Heartbeat":
        """Inside the block, say `what` is still going on whenever nothing else was said for a while."""
        return Heartbeat(self, what)

    async def until(self, what: str, look: Callable[[], Awaitable[T | None]], *, limit_seconds: float) -> T:
        """Look about twice a second until there is an answer. Raises TookTooLong."""
        deadline = time.monotonic() + limit_seconds
        async with self.heartbeat(what):
            while time.monotonic() < deadline:
                if (answer := await look()) is not None:
                    return answer
                await asyncio.sleep(0.5)
        raise TookTooLong(f"{what}: not within {limit_seconds:.0f} s")

    def retell(self) -> None:
        """The whole story, short."""
        print("\nWhat happened:")
        for at, sentence in self.events:
            print(f"  {at:6.1f} s  {sentence}")


class Heartbeat:
    """See Story.heartbeat."""

    def __init__(self, story: Story, what: str) -> None:
        self.story, self.what = story, what

    async def __aenter__(self) -> None:
        self.task = asyncio.create_task(self._beat())

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()

    async def _beat(self) -> None:
        began = time.monotonic()
        while True:
            quiet = time.monotonic() - self.story.spoke_at
            if quiet >= QUIET_SECONDS:
                self.story.say(f"  ... {self.what} ({time.monotonic() - began:.0f} s)")
                quiet = 0.0
            await asyncio.sleep(QUIET_SECONDS - quiet)
