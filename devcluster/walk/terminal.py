"""A terminal in tmux: typed into key by key, read as a person sees it.

    async with opened(folder, path=os.environ["PATH"]) as terminal:
        await terminal.type("ebb gpus")
        print(await terminal.finished())

Its shell shows `$ ` and nothing of this machine; after a command that failed, the exit code stands before it.
"""

import asyncio
import os
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from devcluster.commands import CommandError, run
from devcluster.settings import BoxError

COLUMNS, ROWS = 80, 40
LOOK_SECONDS = 0.1  # between two looks at the screen
SHELL = ("bash", "--noprofile", "--norc", "-i")
PROMPT = re.compile(r"(\d*)\$")
KEPT = ("HOME", "USER", "LOGNAME", "LANG", "TZ", "EBB_HOME", "EBB_KUBECONFIG", "KUBECONFIG", "XDG_CACHE_HOME")


class WalkError(BoxError):
    """Something on the walk did not come; the text has the last screen."""


class Terminal:
    """One window. `type` clears it first, so that a screen is one command's."""

    def __init__(self, socket: Path) -> None:
        self._tmux = ("tmux", "-S", socket)

    async def type(self, text: str) -> None:
        """A command, over several lines where it has line ends."""
        await self._clear()
        for line in text.splitlines():
            await self._do("send-keys", "-l", line)
            await self._do("send-keys", "Enter")

    async def press(self, key: str) -> None:
        """A key by tmux's name, such as C-c or Enter."""
        await self._do("send-keys", key)

    async def screen(self) -> str:
        """All that was shown since it was cleared, also what has scrolled away."""
        shown = await self._do("capture-pane", "-p", "-S", "-")
        return "\n".join(line.rstrip() for line in shown.splitlines()).strip("\n")

    async def until(self, what: str, seen: Callable[[str], bool], *, limit_seconds: float) -> str:
        """The first screen on which it is seen, and still is a moment later: a page that redraws itself may be half drawn."""
        deadline, before = time.monotonic() + limit_seconds, ""
        while True:
            now = await self.screen()
            if seen(now) and seen(before):
                return now
            if time.monotonic() > deadline:
                raise WalkError(f"{what}: not within {limit_seconds:.0f} s. The screen:\n{now}")
            before = now
            await asyncio.sleep(LOOK_SECONDS)

    async def finished(self, *, limit_seconds: float = 120.0, code: int = 0) -> str:
        """Wait for the shell's prompt. Raises WalkError when the command ended with another code."""
        shown = await self.until("the end of a command", lambda screen: ended(screen) is not None, limit_seconds=limit_seconds)
        if (found := ended(shown)) != code:
            raise WalkError(f"a command ended with {found}. The screen:\n{shown}")
        return shown

    async def _clear(self) -> None:
        """`clear` also ends well, so that the next prompt shows no exit code."""
        if await self.screen() == "$":
            return
        await self._do("send-keys", "-l", "clear")
        await self._do("send-keys", "Enter")
        deadline = time.monotonic() + 10.0
        while (await self._do("capture-pane", "-p")).strip() != "$":
            if time.monotonic() > deadline:
                raise WalkError(f"the shell does not answer. The screen:\n{await self.screen()}")
            await asyncio.sleep(LOOK_SECONDS)
        await self._do("clear-history")

    async def _do(self, *words: str) -> str:
        try:
            return await run(*self._tmux, *words)
        except CommandError as error:
            raise WalkError(f"the terminal is gone: {error}") from error


def ended(screen: str) -> int | None:
    """The exit code of the command on the screen; None while it runs."""
    first, *rest = screen.splitlines() or [""]
    match = PROMPT.fullmatch(rest[-1]) if rest and first.startswith("$") else None
    return int(match[1] or 0) if match else None


@asynccontextmanager
async def opened(folder: Path, *, path: str, more: Mapping[str, str] | None = None) -> AsyncIterator[Terminal]:
    """A shell in a folder, with that PATH. Raises WalkError if tmux is not there."""
    if shutil.which("tmux") is None:
        raise WalkError("tmux is not there: `apt-get install tmux`.")
    env = {name: os.environ[name] for name in KEPT if name in os.environ}
    env |= {"PATH": path, "TERM": "screen-256color", "LC_ALL": "C.UTF-8", "PS2": "> ", **(more or {})}
    env["PS1"] = "${?#0}$ "  # the last exit code, unless it is 0
    with tempfile.TemporaryDirectory(prefix="ebb-walk-") as place:
        socket = Path(place) / "tmux"
        size = ("-x", str(COLUMNS), "-y", str(ROWS))
        shell = ("env", "-i", *(f"{name}={value}" for name, value in env.items()), *SHELL)
        await run("tmux", "-S", socket, "-f", os.devnull, "new-session", "-d", *size, "-c", folder, *shell)
        terminal = Terminal(socket)
        try:
            await terminal.until("the shell", lambda screen: PROMPT.fullmatch(screen) is not None, limit_seconds=20.0)
            yield terminal
        finally:
            with suppress(CommandError):
                await run("tmux", "-S", socket, "kill-server")
