"""Files of docs/ that are made from the code: written by `make manifests`, compared by `make check`."""

import sys
from pathlib import Path


def write_or_check(arguments: list[str], page: Path, text: str, source: str) -> int:
    """The exit status: 1 if --check finds that the page does not say what `source` says."""
    if page.exists() and page.read_text() == text:
        return 0
    if "--check" in arguments:
        print(f"{page} does not say what {source} says: run `make manifests` and commit the result.", file=sys.stderr)
        return 1
    page.write_text(text)
    print(f"wrote {page}")
    return 0
