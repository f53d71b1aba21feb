"""What a requirements.txt says beyond the packages it names, as far as installing them in two steps needs it. pip reads the rest.

options(path)      # ["--index-url https://...", "--find-links /code/wheels"]: where packages come from, for another file
is_local(path)     # whether other files beside it say what is installed
"""

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

_COMMENT = re.compile(r"(^|\s)#.*")
_ARCHIVES = r"whl|zip|tar|tgz|tbz|txz|tlz|tar\.\w+"
# pip takes for a place what has a slash, or the name of an archive; a name can have neither.
_PLACE = re.compile(rf"\.|(?!\S*://)(\S*/|\S+\.({_ARCHIVES})(?![\w.]))|.*\bfile:")


def options(path: Path) -> list[str]:
    """In the order of the file and those that it includes, with folders as seen from anywhere."""
    return [option for file, line in _lines(path, set()) for option in _of(file, line)]


def is_local(path: Path) -> bool:
    return any(_names_a_file(line) for _, line in _lines(path, set()))


def _of(file: Path, line: str) -> list[str]:
    given = _parse(line)
    found = ["--no-index"] if given.no_index else []
    found += [f"--index-url {shlex.quote(value)}" for value in given.index_url]
    found += [f"--extra-index-url {shlex.quote(value)}" for value in given.extra_index_url]
    found += [f"--trusted-host {shlex.quote(value)}" for value in given.trusted_host]
    return found + [f"--find-links {shlex.quote(_from_anywhere(file, value))}" for value in given.find_links]


def _from_anywhere(file: Path, value: str) -> str:
    """pip's own rule: relative to the file that says it where that is there, else as it stands."""
    place = file.parent / value
    return str(place.resolve()) if "://" not in value and place.exists() else value


def _names_a_file(line: str) -> bool:
    if not line.startswith("-"):
        return _PLACE.match(line) is not None
    given = _parse(line)
    links = any(not re.match(r"https?://", value) for value in given.find_links)
    return links or bool(given.requirement or given.constraint or given.editable)


def _lines(path: Path, seen: set[Path]) -> Iterator[tuple[Path, str]]:
    """Without comments, with those that go on in the next one joined; those of included files where they are included."""
    if path in seen or not path.is_file():
        return
    seen.add(path)
    for line in _joined(path.read_text(encoding="utf-8-sig", errors="replace")):
        yield path, line
        if line.startswith("-"):
            given = _parse(line)
            for name in [*given.requirement, *given.constraint]:
                yield from _lines((path.parent / name).resolve(), seen)


def _joined(text: str) -> Iterator[str]:
    whole = ""
    for line in text.splitlines():
        if line.endswith("\\") and not _COMMENT.match(line):
            whole += line[:-1]
            continue
        if found := _COMMENT.sub("", whole + line).strip():
            yield found
        whole = ""
    if found := _COMMENT.sub("", whole).strip():
        yield found


def _parse(line: str) -> argparse.Namespace:
    """What pip would not understand it has refused already, or will."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, usage="")
    parser.add_argument("--no-index", action="store_true")
    for names in (
        ("--index-url", "--pypi-url", "-i"),
        ("--extra-index-url",),
        ("--trusted-host",),
        ("--find-links", "-f"),
        ("--requirement", "-r"),
        ("--constraint", "-c"),
        ("--editable", "-e"),
    ):
        parser.add_argument(*names, action="append", default=[])
    try:
        return parser.parse_known_args(shlex.split(line))[0]
    except (argparse.ArgumentError, ValueError):
        return parser.parse_args([])
