"""The committed files that are made from the code: `python -m manifests` writes them, with --check it only compares.

`make manifests` and `make check` call it. Each file's text is a pure function in the module that knows what to say; those of a
cloud are its `pages` (infra/cloud.py). requirements.txt and its like are uv's: the Makefile exports them.
"""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from ebb.api import crd, job_page
from ebb.cli import schemas
from ebb.client.submission import jobschema
from infra import clouds, page
from infra.config import schema
from workloads import dashboards


def generated() -> dict[Path, Callable[[], str]]:
    """Each file with the function that gives its text."""
    files: dict[Path, Callable[[], str]] = {made.PATH: made.text for made in (crd, job_page, jobschema, schema, page)}
    files |= {schemas.FOLDER / f"{name}.json": partial(schemas.text, name) for name in schemas.DOCUMENTS}
    files |= dashboards.pages()
    for name in clouds.names():
        files |= clouds.named(name).pages()
    return files


def outdated(files: Mapping[Path, Callable[[], str]], folder: Path = schemas.FOLDER) -> dict[Path, str | None]:
    """The files that differ from the code, each with the text that it should have. None: `folder` should not have it."""
    wrong: dict[Path, str | None] = {path: None for path in folder.glob("*.json") if path not in files}
    for path, text in files.items():
        wanted = text()
        if not path.is_file() or path.read_text() != wanted:
            wrong[path] = wanted
    return wrong


def main(arguments: list[str]) -> int:
    """Return the exit code: 1 if --check finds a file that differs."""
    wrong = outdated(generated())
    for path, text in sorted(wrong.items()):
        if "--check" in arguments:
            print(f"{path} differs from the code: run `make manifests` and commit the result.", file=sys.stderr)
        elif text is None:
            path.unlink()
            print(f"removed {path}")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"wrote {path}")
    return int(bool(wrong) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
