"""Bytes of a pipe become lines: whole, in order, each once, wherever the reads happen to break."""

import random

import pytest

from ebb.elastic.launch.logs.lines import LONGEST, Batch, Lines, marked, stamp

MOMENT = "2026-11-22T12:58:54.000000001Z"


def fed(*pieces: bytes) -> list[Batch]:
    lines = Lines("6.2.out")
    return [batch for piece in pieces for batch in lines.feed(piece)] + lines.end()


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        pytest.param([b"a\nb\n"], b"a\nb\n", id="whole"),
        pytest.param([b"a", b"b\nc\n"], b"ab\nc\n", id="in-two-reads"),
        pytest.param([b"a\nb", b"c", b"\n"], b"a\nbc\n", id="in-three"),
        pytest.param([b"a\nb"], b"a\nb\n", id="its-writer-is-gone"),
        pytest.param([b"\n", b"\n"], b"\n\n", id="empty-lines"),
        pytest.param([b"\xff\0\r1%\r2%\n"], b"\xff\0\r1%\r2%\n", id="any-bytes"),
        pytest.param([], b"", id="nothing"),
    ],
)
def test_lines_are_whole(pieces: list[bytes], text: bytes) -> None:
    assert b"".join(batch.text for batch in fed(*pieces)) == text


def test_breaks_at_every_place_change_nothing() -> None:
    rng, text = random.Random(1), b"".join(b"line %d\n" % number for number in range(200))
    for _ in range(200):
        cuts = sorted(rng.sample(range(len(text)), 9))
        pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert b"".join(batch.text for batch in fed(*pieces)) == text


def test_a_line_without_end_is_not_held_for_ever() -> None:
    batches = fed(b"x" * (2 * LONGEST), b"y" * 3, b"z\nnext\n")
    assert [(len(batch.text), batch.more) for batch in batches] == [(LONGEST + 1, True), (LONGEST + 1, True), (10, False)]
    assert batches[2].text == b"yyyz\nnext\n"


@pytest.mark.parametrize(
    ("pieces", "seen"),
    [
        pytest.param([b"\r1%", b"\r2%", b"\r3%\n"], [b"\r1%", b"\r2%", b"\r3%\n"], id="tqdm"),
        pytest.param([b"1%\r", b"2%\r", b"\n"], [b"1%\r", b"2%\r", b"\n"], id="behind"),
        pytest.param([b"a\n\r1%", b"\n"], [b"a\n", b"\r1%", b"\n"], id="after-a-line"),
        pytest.param([b"\r1", b"0%\n"], [b"\r1", b"0%\n"], id="in-two-reads"),
        pytest.param([b"\r1", b"0%", b"\n"], [b"\r1", b"0%", b"\n"], id="in-three"),
        pytest.param([b"\r1%"], [b"\r1%", b"\n"], id="its-writer-is-gone"),
        pytest.param([b"half", b" a line\n"], [b"half a line\n"], id="no-bar"),
        pytest.param([b"\r" + b"x" * LONGEST, b"\n"], [b"\r" + b"x" * (LONGEST - 1) + b"\n", b"x\n"], id="long"),
    ],
)
def test_a_terminal_has_a_bar_at_once_and_each_byte_once(pieces: list[bytes], seen: list[bytes]) -> None:
    lines, shown, text = Lines("6.2.out"), list[bytes](), b""
    for piece in [*pieces, None]:
        batches = lines.end() if piece is None else lines.feed(piece)
        shown += filter(None, [*(batch.text[batch.shown :] for batch in batches), lines.bar()])
        text += b"".join(batch.text[: -1 if batch.more else None] for batch in batches)
    assert shown == seen
    assert text.rstrip(b"\n") == b"".join(pieces).rstrip(b"\n"), "and the file whole lines"


def test_each_line_has_its_time_and_who_wrote_it() -> None:
    assert marked(Batch(tag="6.2.out", text=b"a\n\nb c\n"), MOMENT) == (
        b"2026-11-22T12:58:54.000000001Z 6.2.out a\n"
        b"2026-11-22T12:58:54.000000001Z 6.2.out \n"
        b"2026-11-22T12:58:54.000000001Z 6.2.out b c\n"
    )
    assert marked(Batch(tag="0.0.err", text=b"a\n", more=True), MOMENT).split()[1] == b"0.0.err+"


def test_stamps_are_rfc_3339_with_nanoseconds() -> None:
    assert stamp(1795352334 * 10**9 + 42) == "2026-11-22T12:58:54.000000042Z"
