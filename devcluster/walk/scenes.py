"""What a walk has shown, as a page of Markdown. Pure.

page([Scene(title="What is there", text="...", screens=(screen,))], recorded="2026-11-22", pictures=("walk/report-light.png",))
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

HEAD = """# A walk through Ebb

What a new user sees, from an empty box to a finished job, a sweep and a report. Recorded on {recorded} by `make walk`, which
types each command into a terminal of 80 columns on the local stack (`make up`), waits for what is to be seen and writes this
page: every block is what the terminal showed. The machines are network namespaces of one computer with few cores, so seconds
here are not those of a cloud, whose machines take minutes to boot.
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
