"""Runs one copy: `python -m ebb.buckets s3://imagenet/train /mnt/data/imagenet`.

Exit codes: 0 the folder is there; 1 the store or the network failed, the same again may work; EXIT_COPY_REFUSED (77) a person has
to do something, and the last line says what. SIGTERM ends it at once: nothing that was written has to be repeated.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ebb.buckets.copy import copy, size_words
from ebb.buckets.outcome import conclude, say
from ebb.buckets.stores import open_bucket

SHARED = 0o002  # of what is written the group may change all, as the volumes' folders say


def main(arguments: Sequence[str]) -> int:
    """The only reader of argv."""
    parser = argparse.ArgumentParser(prog="python -m ebb.buckets", description="Copy a bucket into a folder, once.")
    parser.add_argument("url", help="s3://bucket/prefix, gs://... or az://container/prefix")
    parser.add_argument("folder", type=Path, help="where the files shall be")
    parser.add_argument("--unless", type=Path, metavar="FOLDER", help="there is nothing to do where this one exists")
    given = parser.parse_args(arguments)
    if given.unless and given.unless.exists():
        say(f"{given.unless} is there: nothing to copy")
        return 0
    os.umask(SHARED)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))  # threads in requests would hold it up
    return conclude(partial(_copy, given.url, given.folder), kept="what was copied is kept, and another try goes on from there")


def _copy(url: str, folder: Path) -> str:
    done = copy(open_bucket(url), folder, say)
    left_out = f"; {done.gone} were removed from the bucket meanwhile" if done.gone else ""
    now = f"{size_words(done.fetched)} fetched now"
    return f"{folder} is complete: {done.files} files, {size_words(done.size)} ({now}){left_out}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
