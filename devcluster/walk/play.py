"""The walk: what is typed, what is waited for, and what is shown of it.

scenes = await Walk(Terminal, other=Terminal, ...).perform()

The second terminal is the cloud: it takes a machine away while the first one watches. page() makes Markdown of the scenes.
Pictures of reports are taken by a Chromium without a window, if this machine has one ($EBB_BROWSER, else the names under which
distributions have it); a walk without one has no pictures.
"""

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devcluster.commands import CommandError, run
from devcluster.settings import CHECKOUT
from devcluster.walk.terminal import Terminal, WalkError

HEAD = """# A walk through Ebb

A new user's screen: a script of one's own, a job that loses a machine, the live page, a sweep, a report. Recorded on {recorded}
by `make walk`, which types each command into a terminal of 80 columns on the local stack (`make up`), waits for what is to be
seen and writes this page: every block is what the terminal showed. The machines are network namespaces of one computer with few
cores, so seconds here are not those of a cloud, whose machines take minutes to boot.
"""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A chapter: a few words, then one screen or more."""

    title: str
    text: str
    screens: tuple[str, ...] = ()
    pictures: tuple[tuple[str, str], ...] = ()  # what it shows -> the file, beside the page


def page(scenes: Sequence[Scene], *, recorded: str) -> str:
    """`recorded`: the day."""
    parts = [HEAD.format(recorded=recorded)]
    for number, scene in enumerate(scenes, 1):
        parts.append(f"## {number}. {scene.title}\n\n{scene.text}\n")
        parts += [f"{_fence(screen)}text\n{screen}\n{_fence(screen)}\n" for screen in scene.screens]
        parts += [f"![{shows}]({file})\n" for shows, file in scene.pictures]
    return "\n".join(parts)


def cleaned(screen: str, hidden: Mapping[str, str]) -> str:
    """A screen without the prompt that waits for the next command, and with other words for this machine's paths."""
    lines = screen.splitlines()
    while lines and lines[-1].strip() in ("", "$"):
        lines.pop()
    text = "\n".join(line.rstrip() for line in lines)
    for path in sorted(hidden, key=len, reverse=True):  # the longest first: one may begin with another
        text = text.replace(path, hidden[path])
    return text


def _fence(screen: str) -> str:
    """Longer than any in the text."""
    fence = "```"
    while fence in screen:
        fence += "`"
    return fence


NAMES = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "google-chrome-stable")
SCHEMES = {"light": 1, "dark": 0}  # Chromium's own numbers of them


def find_browser() -> str | None:
    """The program, or None."""
    named = os.environ.get("EBB_BROWSER")
    return next((found for name in ((named,) if named else NAMES) if (found := shutil.which(name))), None)


async def picture(browser: str, page: Path, out: Path, *, scheme: str, width: int = 1280, height: int = 1650) -> None:
    """Write a PNG of the upper part of a page. Raises CommandError."""
    with tempfile.TemporaryDirectory(prefix="ebb-browser-") as profile:
        await run(
            browser,
            "--headless",
            "--no-sandbox",  # it shows a file of ours, and root, who owns the devcluster, may not have one
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
            f"--window-size={width},{height}",
            f"--screenshot={out}",
            page.resolve().as_uri(),
        )


MINE, JOB, SWEEP = "mine", "digits", "scan"
BOOT_SECONDS, TRAIN_SECONDS = 240.0, 600.0  # of limits to waiting
PROGRAM = "-m trainer --data /mnt/data/digits --arch resnet18 --image-size 32"
SUBMIT_MINE = f"""\
ebb submit --name {MINE} --gpus 2 --gpu T4 \\
  --progress-regex 'epoch (?P<step>\\d+), .* loss (?P<loss>[\\d.]+)' -- \\
  python train.py"""
UI = "ebb ui --no-open"
SUBMIT = f"""\
ebb submit --name {JOB} --gpus 2 --gpu T4 --min 1 --max 4 -- \\
  {PROGRAM} \\
  --epochs 9 --global-batch 64 --min-step-seconds 0.2 --log-every 1"""
SWEEP_OF_FOUR = f"""\
ebb sweep --name {SWEEP} --gpus 1 --gpu T4 --max-parallel 2 --watch \\
  lr=0.2,0.02 weight-decay=0,0.001 -- \\
  {PROGRAM} \\
  --epochs 2 --global-batch 64 --log-every 1"""
QUESTION = re.compile(r"\[Y/n\]:?$")
# The address is longer than a line; what `ebb ui` says next begins a new one.
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/.*?(?=\nWhoever)", re.DOTALL)
LOSS = re.compile(r"\bloss +\d")
LOST = re.compile(r"worker \d+\b.* (was lost|reclaimed)", re.DOTALL)
ONE = re.compile(r"workers +1 of 2")
BOTH = re.compile(r"workers +2 of 2")


@dataclass(kw_only=True)
class Walk:
    """`path`: where `ebb` is found. `folder`: where the user is. `reclaim`: takes {machine} away."""

    terminal: Terminal
    cloud: Terminal
    path: str
    folder: Path
    reclaim: str = "python -m devcluster reclaim {machine} --notice 30"
    pictures: Path | None = None  # where pictures of the report go; None: no browser is there
    browser: str = ""
    hidden: dict[str, str] = field(default_factory=dict)
    tell: Callable[[str], None] = print
    scenes: list[Scene] = field(default_factory=list)

    async def perform(self) -> list[Scene]:
        """All acts, in order. Raises WalkError where one does not go as it should."""
        await self.clear_the_stage()
        await self.own_script()
        await self.first_loss()
        await self.lose_a_machine()
        await self.look_at_the_page()
        await self.read_logs()
        await self.finish()
        await self.sweep()
        await self.report()
        await self.leave()
        return self.scenes

    async def clear_the_stage(self) -> None:
        """An earlier walk may have left its jobs."""
        there = {job["name"] for job in (await self.ask("list", "-o", "json"))["jobs"]}
        old = sorted(filter(_is_ours, there))
        if old:
            self.tell(f"removing what an earlier walk left: {', '.join(old)}")
            await self.run("delete", *old)

    async def own_script(self) -> None:
        self.tell("a script of one's own")
        (self.folder / "train.py").write_text(readme_script())
        await self.terminal.type("cat train.py")
        script = await self.terminal.finished()
        await self.say_yes(SUBMIT_MINE)
        submitted = await self.terminal.finished()
        await self.terminal.type(f"ebb wait {MINE}")
        await self.terminal.finished(limit_seconds=BOOT_SECONDS + TRAIN_SECONDS)
        await self.terminal.type(f"ebb logs {MINE} --tail 4")
        log = await self.terminal.finished()
        await self.terminal.type(f"ebb status {MINE}")
        status = await self.terminal.finished()
        text = (
            "An ordinary DistributedDataParallel script, with no line of Ebb in it, in an otherwise empty folder. `ebb submit` "
            "sends the folder along, and `--progress-regex` says where step and loss stand in what the script prints."
        )
        self.show("Your own script", text, script, submitted, log, status)

    async def first_loss(self) -> None:
        self.tell("three commands to the first loss")
        await self.terminal.type("ebb gpus")
        gpus = await self.terminal.finished()
        began = time.monotonic()
        await self.say_yes(SUBMIT)
        submitted = await self.terminal.finished()
        await self.terminal.type(f"ebb status {JOB} --watch")
        loss = await self.terminal.until("the first loss", _sees(LOSS), limit_seconds=BOOT_SECONDS)
        text = (
            "The image's own trainer, for a few minutes. What GPUs are there, start on two of them, look: `ebb submit` says what "
            f"it costs before it asks. {time.monotonic() - began:.0f} seconds after it was typed the first loss is there; "
            "until then two spot machines were asked for, booted, and met."
        )
        self.show("A longer job", text, gpus, submitted, loss)

    async def lose_a_machine(self) -> None:
        """The first terminal still watches."""
        self.tell("a machine is taken away")
        await self.terminal.until("both workers", _sees(BOTH), limit_seconds=BOOT_SECONDS)
        machine = await self.machine()
        await self.cloud.type(self.reclaim.format(machine=machine))
        lost = await self.terminal.until("the reclaim", _sees(LOST, ONE), limit_seconds=120.0)
        taken = await self.cloud.finished()
        back = await self.terminal.until("both workers again", _sees(LOST, BOTH), limit_seconds=BOOT_SECONDS)
        await self.terminal.press("C-c")
        left = await self.terminal.finished(code=130)
        text = (
            "While the page above redraws itself, a second terminal plays the cloud and takes one of the two machines back, with "
            "30 seconds of notice. The other worker trains on alone until a new machine is there. Ctrl-C ends the watching, not "
            "the job."
        )
        self.show("A machine is taken away", text, taken, lost, back, _tail(left, 2))

    async def look_at_the_page(self) -> None:
        """The job trains on meanwhile."""
        self.tell("the live page")
        await self.cloud.type(UI)
        await self.cloud.until("its address", _sees(ADDRESS), limit_seconds=60.0)
        await self.cloud.press("C-c")
        closed = await self.cloud.finished(code=130)
        text = "`ebb ui` shows it in the browser, as it comes: losses, reclaims, logs, money. Only this machine can reach it."
        self.show("The live page", text, ADDRESS.sub("http://127.0.0.1:38211/...", closed))

    async def read_logs(self) -> None:
        self.tell("logs")
        await self.terminal.type(f"ebb logs {JOB} --tail 6")
        self.show("Logs", "All workers, merged; those of the lost one are there too.", await self.terminal.finished())

    async def finish(self) -> None:
        self.tell("to the end")
        await self.terminal.type(f"ebb wait {JOB}")
        await self.terminal.finished(limit_seconds=TRAIN_SECONDS)
        await self.terminal.type(f"ebb status {JOB}")
        self.show("The end", "`ebb wait` returns when the job is over; then:", await self.terminal.finished())

    async def sweep(self) -> None:
        self.tell("a sweep of four")
        await self.say_yes(SWEEP_OF_FOUR)
        midway = await self.terminal.until("two runs at once", _runs(2), limit_seconds=BOOT_SECONDS)
        over = await self.terminal.finished(limit_seconds=2 * TRAIN_SECONDS)
        text = "Two learning rates times two weight decays, two runs at a time. First in the midst of it, then at the end."
        self.show("A sweep of four", text, midway, over)

    async def report(self) -> None:
        self.tell("reports")
        await self.terminal.type(f"ebb report {JOB}")
        of_job = await self.terminal.finished()
        await self.terminal.type(f"ebb report {SWEEP}")
        of_sweep = await self.terminal.finished()
        pictures = await self.photograph() if self.pictures else ()
        text = "One file each, with everything in it: to look at, to send, to keep."
        self.show("A report", text, of_job, of_sweep, pictures=pictures)

    async def leave(self) -> None:
        """Their output stays on the shared volume."""
        await self.terminal.type("ebb list")
        listed = await self.terminal.finished()
        names = [job["name"] for job in (await self.ask("list", "-o", "json"))["jobs"]]
        await self.run("delete", *filter(_is_ours, names))
        self.show("What there is now", "All of it in one table. The machines have left by themselves.", listed)

    async def photograph(self) -> tuple[tuple[str, str], ...]:
        assert self.pictures is not None
        self.pictures.mkdir(parents=True, exist_ok=True)
        wanted = [(JOB, "light", "report-light.png"), (JOB, "dark", "report-dark.png"), (SWEEP, "light", "sweep-light.png")]
        for name, scheme, file in wanted:
            await picture(self.browser, self.folder / f"{name}.html", self.pictures / file, scheme=scheme)
        folder = self.pictures.name
        return tuple((f"the report of {name}, {scheme}", f"{folder}/{file}") for name, scheme, file in wanted)

    async def say_yes(self, command: str) -> None:
        """Type a command that asks before it starts something."""
        await self.terminal.type(command)
        await self.terminal.until("the question", _asks, limit_seconds=60.0)
        await self.terminal.press("Enter")

    async def machine(self) -> str:
        """The machine under the last of the workers that run."""
        seen = await self.ask("status", JOB, "-o", "json")
        machines = [worker["machine"] for worker in seen["workers"] if worker["state"] == "running" and worker["machine"]]
        if not machines:
            raise WalkError(f"no worker of {JOB} runs: {seen['workers']}")
        return str(machines[-1])

    async def ask(self, *words: str) -> Any:
        return json.loads(await self.run(*words))

    async def run(self, *words: str) -> str:
        """`ebb` behind the scenes."""
        try:
            return await run("ebb", *words, env={"PATH": self.path})
        except CommandError as error:
            raise WalkError(str(error)) from error

    def show(self, title: str, text: str, *screens: str, pictures: tuple[tuple[str, str], ...] = ()) -> None:
        shown = tuple(cleaned(screen, self.hidden) for screen in screens)
        self.scenes.append(Scene(title=title, text=text, screens=shown, pictures=pictures))


def readme_script() -> str:
    """The script that the README begins with: what is promised there is what is tried here."""
    found = re.search(r"^```python\n(.*?)^```", (CHECKOUT / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def _is_ours(job: str) -> bool:
    return job in (MINE, JOB) or job.startswith(f"{SWEEP}-")


def _asks(screen: str) -> bool:
    return QUESTION.search(screen) is not None


def _sees(*wanted: "re.Pattern[str]") -> Callable[[str], bool]:
    return lambda screen: all(pattern.search(screen) for pattern in wanted)


def _runs(count: int) -> Callable[[str], bool]:
    return lambda screen: len(re.findall(rf"\b{SWEEP}-\w+ +running\b", screen)) >= count


def _tail(screen: str, lines: int) -> str:
    """The last lines, but for the prompt."""
    return "\n".join(screen.splitlines()[:-1][-lines:])
