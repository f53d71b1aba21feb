"""What the files of a job say of its generations, for an etcd that has forgotten: the next number is above all of them.

Checkpoints carry their generation in their names, claims are files named by it (ebb/elastic/checkpoint/fence.py has the same).
A claim is made before its generation is, so that a number is never given twice even when nothing was saved in between.
"""

from collections.abc import Callable
from pathlib import Path

from ebb.elastic.checkpoint.fence import highest_generation


def read(output: Path | None) -> int:
    """The highest generation that left a trace; 0 when there is none, no folder, or it cannot be read."""
    if output is None:
        return 0
    try:
        return highest_generation(output)
    except OSError:
        return 0


def claim(output: Path | None, number: int, say: Callable[[str], None]) -> None:
    """A folder that cannot be written is said and no more: etcd alone keeps the number then."""
    if output is None:
        return
    folder = output / "generations"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:05}").touch()
        for path in folder.iterdir():
            if path.name.isdigit() and int(path.name) < number:
                path.unlink(missing_ok=True)  # only the highest claim decides
    except OSError as error:
        say(f"generation {number} could not be noted in {folder} ({error.strerror}): only etcd knows its number")
