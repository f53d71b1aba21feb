"""docs/glossary.md against the code: words that are gone stay gone, and docstrings open with a verb or a noun.

The page's table of words that are gone is the input. A word is found where no letter stands before or after it, so `crew` is
found in `_crew_of` and not in `screw`; `def told` also stands for `def _told`. Case counts.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch

import pytest

from tests.docs.tree import ROOT, syntax, texts

PAGE = "docs/glossary.md"
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
OPENERS = ("What", "Whether", "Who", "How", "Where", "That")


@dataclass(frozen=True)
class Rule:
    """Words that one row bans. `allowed` are globs of paths."""

    words: tuple[str, ...]
    instead: str
    allowed: tuple[str, ...] = (PAGE,)

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(_pattern(word) for word in self.words))

    def places(self, files: dict[str, str]) -> list[str]:
        """`file:line: word` of each use."""
        pattern = self.pattern
        # Few files have a word at all, and a plain search is many times faster than the pattern.
        parts = {max(word.split(), key=len) for word in self.words}
        return [
            f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()!r}, use: {self.instead}"
            for path, text in files.items()
            if any(part in text for part in parts) and not any(fnmatch(path, glob) for glob in self.allowed)
            for match in pattern.finditer(text)
        ]


def _pattern(word: str) -> str:
    before = r"(?<![A-Za-z])" if word[0].isalpha() else ""
    after = r"(?![A-Za-z])" if word[-1].isalpha() else ""
    if word.startswith("def "):
        return rf"{before}def _*{re.escape(word[4:])}(?![A-Za-z_])"
    return before + re.escape(word).replace(r"\ ", r"\s+") + after


def _rows(heading: str) -> Iterator[list[str]]:
    section = (ROOT / PAGE).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:])


def _quoted(cell: str) -> tuple[str, ...]:
    return tuple(re.findall("`([^`]+)`", cell))


GONE = [Rule(_quoted(words), instead, (PAGE, *_quoted(allowed))) for words, instead, allowed in _rows("Words that are gone")]


@pytest.mark.parametrize("rule", GONE, ids=lambda rule: rule.words[0])
def test_words_that_are_gone_stay_gone(rule: Rule) -> None:
    assert not (places := rule.places(texts())), "\n" + "\n".join(places)


def test_docstrings_open_with_a_verb_or_a_noun() -> None:
    places = list(_badly_opened())
    assert not places, "open with an imperative or a noun phrase:\n" + "\n".join(places)


def _badly_opened() -> Iterator[str]:
    for path in texts():
        if not path.endswith(".py"):
            continue
        for node in _with_docstrings(syntax(path)):
            opening = (ast.get_docstring(node, clean=False) or "").split(maxsplit=1)[:1]
            if opening and opening[0].rstrip(",:") in OPENERS:
                yield f"{path}:{node.body[0].lineno}: {opening[0]!r}"


def _with_docstrings(node: Documented) -> Iterator[Documented]:
    """The module, its classes and functions, and theirs; not those inside of `if` and the like, which have none worth a look."""
    yield node
    for inner in node.body:
        if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _with_docstrings(inner)


def test_the_glossary_has_one_meaning_for_each_word() -> None:
    words = Counter(word for cells in _rows("Words") for word in cells[0].split(", "))
    assert len(words) >= 30
    assert [word for word, count in words.items() if count > 1] == []


@pytest.mark.parametrize(
    ("word", "text", "found"),
    [
        ("crew", "def _crew_of(): ...", True),
        ("crew", "screws", False),
        ("Hands", "class Hands:", True),
        ("Hands", "hands", False),
        ("def told", "    async def _told(self)", True),
        ("def told", "def told_so(self)", False),
        ("cloud in a box", "the cloud in a\nbox", True),
        ("local/", "ebb/local/x", True),
    ],
)
def test_a_word_is_found_as_a_part_of_a_name(word: str, text: str, found: bool) -> None:
    assert bool(Rule((word,), "").places({"x.py": text})) is found


def test_an_allowed_path_is_passed_over() -> None:
    rule = Rule(("echo",), "mocks", ("devcluster/machines/*",))
    files = {"devcluster/machines/network.py": "echo 1", "infra/page.py": "\n# echo\n"}
    assert rule.places(files) == ["infra/page.py:2: 'echo', use: mocks"]
