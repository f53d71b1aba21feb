"""The question before something is sent, at a real terminal: every answer, and Ctrl-C, which asyncio would swallow."""

import os
import pty
import select
import time

import pytest

from tests.cli.program import EBB

PROGRAM = """
import asyncio
from ebb.cli.terminal import confirm, is_interactive

async def verb():
    assert is_interactive()
    return confirm("Start it?")

print("answer:", asyncio.run(verb()))
"""


@pytest.mark.parametrize(
    ("keys", "answer"),
    [(b"y\n", True), (b"\n", True), (b"n\n", False), (b"\x03", False), (b"\x04", False)],
    ids=["yes", "enter", "no", "ctrl-c", "ctrl-d"],
)
def test_an_answer_at_a_terminal(keys: bytes, answer: bool) -> None:
    terminal, its = pty.openpty()
    program = EBB.start("-c", PROGRAM, env=os.environ, stdin=its, stdout=its, stderr=its)
    os.close(its)
    try:
        read(terminal, b"[Y/n]: ")
        os.write(terminal, keys)
        assert read(terminal, b"answer: ", again=keys).split()[0] == (b"True" if answer else b"False")
    finally:
        program.wait()
        os.close(terminal)


SECRET = """
from ebb.cli.verbs.secret import read_value

print("length:", len(read_value("hf-token", None, None)), "end")
"""


def test_a_value_is_typed_without_being_shown() -> None:
    terminal, its = pty.openpty()
    program = EBB.start("-c", SECRET, env=os.environ, stdin=its, stdout=its, stderr=its)
    os.close(its)
    try:
        read(terminal, b"Value of hf-token (not shown): ")
        os.write(terminal, b"hf_AbCdEf\n")
        shown = list[bytes]()
        read(terminal, b"end", shown)
        assert b"length: 9 " in shown[0]
        assert b"hf_AbCdEf" not in shown[0]
    finally:
        program.wait()
        os.close(terminal)


def read(terminal: int, until: bytes, whole: list[bytes] | None = None, *, seconds: float = 30.0, again: bytes = b"") -> bytes:
    """What comes after `until`, with the rest of its line. Keys are pressed again after a second, as a person would: a signal
    that comes in the moment before Python waits for input is heard with the next one only."""
    seen, deadline = b"", time.monotonic() + seconds
    while until not in seen or (again and not seen.split(until, 1)[1].strip()):
        assert time.monotonic() < deadline, seen
        if select.select([terminal], [], [], 1.0)[0]:
            seen += os.read(terminal, 1024)
        elif again == b"\x03":
            os.write(terminal, again)
    if whole is not None:
        whole.append(seen)
    return seen.split(until, 1)[1]
