"""The program that keeps a folder of log files within its days and its GiB: the oldest go first.

    python -m ebb.log_files /logs --keep-days 30 --keep-gib 10       # for ever, every ten minutes

Whoever writes the files rotates them by size; a machine that is gone rotates nothing any more. So what is too old, and what is
too much of all machines together, is for this program. It only looks at the folder's own files, never at folders in it.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

DAY_SECONDS, GIB = 86_400, 1024**3
PAUSE_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True, order=True)
class LogFile:
    """`changed`: seconds since 1970."""

    changed: float
    path: Path
    size: int


def listed(folder: Path) -> Iterator[LogFile]:
    """The files in it. One that goes meanwhile is none. Raises OSError: the folder cannot be read."""
    for path in folder.iterdir():
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        if path.is_file() and not path.is_symlink():
            yield LogFile(changed=found.st_mtime, path=path, size=found.st_size)


def excess(files: Iterable[LogFile], *, now: float, keep_days: int, keep_bytes: int) -> list[LogFile]:
    """Those that go, oldest first: older than the days, and then as many as are beyond the size."""
    oldest_first = sorted(files)
    kept = sum(one.size for one in oldest_first)
    gone = []
    for one in oldest_first:
        if one.changed >= now - keep_days * DAY_SECONDS and kept <= keep_bytes:
            break
        gone.append(one)
        kept -= one.size
    return gone


def tidy(folder: Path, *, now: float, keep_days: int, keep_bytes: int) -> list[LogFile]:
    """Delete what is too much, and return it. Raises OSError."""
    gone = excess(listed(folder), now=now, keep_days=keep_days, keep_bytes=keep_bytes)
    for one in gone:
        one.path.unlink(missing_ok=True)  # its writer may have rotated it meanwhile
    return gone


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m ebb.log_files", description="Deletes the oldest files of a folder of logs.")
    parser.add_argument("folder", type=Path, help="where the files are")
    parser.add_argument("--keep-days", type=int, required=True, help="how long a file is kept after its last line")
    parser.add_argument("--keep-gib", type=int, required=True, help="how many GiB all of them may have")
    parser.add_argument("--once", action="store_true", help="look once, and end")
    asked = parser.parse_args(arguments)
    while True:
        try:
            gone = tidy(asked.folder, now=time.time(), keep_days=asked.keep_days, keep_bytes=asked.keep_gib * GIB)
        except OSError as error:  # a file system that is away for a while; the next look is soon
            print(f"cannot tidy {asked.folder}: {error}", file=sys.stderr, flush=True)
            if asked.once:
                raise SystemExit(1) from error
        else:
            if gone:
                size = sum(one.size for one in gone)
                print(f"deleted {len(gone)} files, {size / GIB:.2f} GiB, the oldest {gone[0].path.name}", flush=True)
        if asked.once:
            return
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main()
