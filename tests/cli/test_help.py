"""The help of every verb, word for word: golden/help/*.txt. EBB_UPDATE_GOLDENS=1 writes them again."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ebb.cli.app import VERBS, app, load
from ebb.cli.exits import MEANINGS, Exit

GOLDEN = Path(__file__).parent / "golden" / "help"
UPDATE = "EBB_UPDATE_GOLDENS"


def commands() -> Iterator[tuple[str, ...]]:
    """The words of `ebb` itself, of every verb, and of every verb of a verb."""
    yield ()
    for name in VERBS:
        yield from _below((name,), load(name))


def _below(words: tuple[str, ...], command: Any) -> Iterator[tuple[str, ...]]:
    yield words
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        yield from _below((*words, name), inner)


def help_of(words: tuple[str, ...]) -> str:
    result = CliRunner().invoke(app, [*words, "--help"], prog_name="ebb", env={"COLUMNS": "80", "TERM": "dumb"})
    assert (result.exit_code, result.stderr) == (0, ""), words
    return "\n".join(line.rstrip() for line in result.stdout.splitlines()) + "\n"


def file_of(words: tuple[str, ...]) -> Path:
    return GOLDEN / f"{'-'.join(('ebb', *words))}.txt"


ALL = list(commands())


@pytest.mark.parametrize("words", ALL, ids=lambda words: " ".join(("ebb", *words)))
def test_help_is_as_it_was(words: tuple[str, ...]) -> None:
    text = help_of(words)
    assert max(map(len, text.splitlines())) <= 80
    if os.environ.get(UPDATE):
        GOLDEN.mkdir(parents=True, exist_ok=True)
        file_of(words).write_text(text)
    assert text == file_of(words).read_text(), f"look whether that is meant; {UPDATE}=1 pytest {__file__} writes it"


def test_no_golden_is_left_over() -> None:
    known = {file_of(words) for words in ALL}
    strangers = set(GOLDEN.glob("*.txt")) - known
    if os.environ.get(UPDATE):
        for path in strangers:
            path.unlink()
    else:
        assert not strangers


def test_the_exit_codes_are_in_the_help_and_named() -> None:
    text = help_of(())
    assert set(MEANINGS) == set(Exit)
    assert all(f"{int(code):>5}  {meaning}" in text for code, meaning in MEANINGS.items())
