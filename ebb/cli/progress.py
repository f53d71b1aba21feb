"""A bar for transfers on a terminal: bytes, speed, time left. Into a pipe nothing but the result is written."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from ebb.cli.render import make_console
from ebb.client.files.data import Show, Silent


class Bar:
    """See ebb.client.files.data.Show."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._size = progress, 0
        self._task = progress.add_task("looking", total=None)

    def found(self, files: int, size: int) -> None:
        """See Show."""
        self._size += size
        what = "1 file" if files == 1 else f"{files} files"
        self._progress.update(self._task, total=self._size, description=what)

    def moved(self, size: int) -> None:
        """See Show."""
        self._progress.advance(self._task, size)


@contextmanager
def bar() -> Iterator[Show]:
    """On a terminal a bar on stderr, else silence."""
    console = make_console(stderr=True)
    if not console.is_terminal:
        yield Silent()
        return
    # Narrow: all of it fits 80 columns.
    columns = (TextColumn("{task.description}"), BarColumn(20), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bar(progress)
