"""Lines of the files that launchers write, and which of them somebody wants to see."""

import re
from datetime import UTC, datetime

import pytest

from ebb.client.logs.lines import ALL, Choice, FileLines, Line, Part

STAMP = "2026-11-22T12:58:54.123456789Z"
TIME = datetime(2026, 11, 22, 12, 58, 54, 123456, UTC)
PART = Part("20261122T125854-000000001Z", 0, "uid", "x")


def line(text: str, rank: int | None = 6, stream: str = "out") -> Line:
    return Line(STAMP, TIME, text, rank, stream)


FED = {
    "a rank's": ([b"@ 6.2.out a b\n"], [line("a b")]),
    "the launcher's": ([b"@ -.-.err [launcher] x\n"], [line("[launcher] x", None, "err")]),
    "empty": ([b"@ 6.2.out \n"], [line("")]),
    "spaces stay": ([b"@ 6.2.out   a \n"], [line("  a ")]),
    "no text at all": ([b"@ 6.2.out \xff\n"], [line("\ufffd")]),
    "in pieces": ([b"@ 6.2.out a", b"b\n"], [line("ab")]),
    "half a line is none": ([b"@ 6.2.out a\n", b"@ 6.2.out b"], [line("a")]),
    "one that goes on": ([b"@ 6.2.out+ a\n", b"@ 0.0.out x\n", b"@ 6.2.out b\n"], [line("x", 0), line("ab")]),
    "goes on twice": ([b"@ 6.2.out+ a\n", b"@ 6.2.out+ b\n", b"@ 6.2.out c\n"], [line("abc")]),
}


@pytest.mark.parametrize(("pieces", "wanted"), FED.values(), ids=FED)
def test_lines_of_a_file(pieces: list[bytes], wanted: list[Line]) -> None:
    found, lines = FileLines(), []
    found.begin(PART)
    for piece in pieces:
        lines += found.feed(piece.replace(b"@", STAMP.encode()))
    assert lines == wanted


def test_half_a_line_is_not_glued_to_the_next_file() -> None:
    found = FileLines()
    found.begin(PART)
    assert found.feed(f"{STAMP} 6.2.out hal".encode()) == []
    found.begin(Part(PART.start, 1, "uid", "y"))
    assert found.feed(f"{STAMP} 6.2.out half\n".encode()) == [line("half")]


def test_a_line_that_goes_on_may_do_so_in_the_next_file_of_that_start_only() -> None:
    for start, wanted in ((PART.start, [line("ab")]), ("20261122T130000-000000001Z", [line("b")])):
        found = FileLines()
        found.begin(PART)
        found.feed(f"{STAMP} 6.2.out+ a\n".encode())
        found.begin(Part(start, 1, "uid", "y"))
        assert found.feed(f"{STAMP} 6.2.out b\n".encode()) == wanted


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("/o/worker-0/20261122T125854-000000001Z.ab-12.000007.log", Part("20261122T125854-000000001Z", 7, "ab-12", "")),
        ("/o/worker-0/metrics.log", None),
        ("/o/worker-0/20261122T125854-000000001Z.ab-12.log", None),
    ],
)
def test_names_of_files(path: str, part: Part | None) -> None:
    assert Part.of(path) == part


def test_parts_are_ordered_by_start_and_number() -> None:
    names = [
        "20261122T125854-000000001Z.z.000001.log",
        "20261122T125854-000000001Z.z.000000.log",
        "20261122T125853-900000000Z.z.000009.log",
    ]
    assert [part.part for part in sorted(filter(None, map(Part.of, names)))] == [9, 0, 1]


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        pytest.param(ALL, True, id="all"),
        pytest.param(Choice(rank=6), True, id="its-rank"),
        pytest.param(Choice(rank=2), False, id="another-rank"),
        pytest.param(Choice(since=TIME), True, id="since-then"),
        pytest.param(Choice(since=TIME.replace(second=55)), False, id="since-later"),
        pytest.param(Choice(grep=re.compile("loss [0-9]")), True, id="found-in-it"),
        pytest.param(Choice(grep=re.compile("^loss")), False, id="not-found"),
        pytest.param(Choice(rank=6, grep=re.compile("nan")), False, id="one-of-two"),
    ],
)
def test_a_choice(choice: Choice, wanted: bool) -> None:
    assert choice.wants(line("step 1 loss 2.5")) is wanted
