"""Check of lines: missing, double, made up or out of order. Pure.

problems = judge(acknowledged, printed, written=counts, undisturbed={"pod-2", "pod-3"})       # empty: the promise is kept
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

SHOWN = 3  # examples of each kind of problem
_TEXT = re.compile(r"(\S+) (\d+) (out|err) (\d+) .+")
_STORED = re.compile(r"\S+Z (?:\d+\.(\d+)|-\.-)\.(?:out|err) (.*)")


class Said(NamedTuple):
    """One line of program.py."""

    pod: str
    rank: int  # within its pod
    stream: str
    number: int


def parse_said(text: str) -> Said | None:
    """None for what no rank has said."""
    match = _TEXT.fullmatch(text)
    return Said(match[1], int(match[2]), match[3], int(match[4])) if match else None


def acknowledged(ledger: bytes) -> list[Said]:
    """The lines of a launcher's ledger: whole ones, as a reader of the file could have seen them."""
    found = []
    for raw in ledger.decode().split("\n")[:-1]:
        match = _STORED.fullmatch(raw)
        if match is None:
            raise ValueError(f"this is no line of a log file: {raw!r}")
        line = parse_said(match[2])
        if line is not None and match[1] == str(line.rank):
            found.append(line)
    return found


def judge(
    acked: Iterable[Said], printed: Sequence[Said], *, written: Mapping[tuple[str, int], int], undisturbed: Collection[str]
) -> list[str]:
    """`written`: by pod and rank, how many writes of that rank have returned; `undisturbed`: pods that ended by themselves."""
    counts, whole = Counter(printed), Counter(acked)
    expected = {
        Said(pod, rank, stream, number)
        for (pod, rank), count in written.items()
        if pod in undisturbed
        for number in range(count)
        for stream in ("err" if number % 10 == 0 else "out",)
    }
    kinds = {
        "acknowledged lines are missing": sorted(whole.keys() - counts.keys()),
        "lines of ranks that nobody killed are missing": sorted(expected - counts.keys()),
        "lines are printed more than once": sorted(line for line, count in counts.items() if count > 1),
        "lines were acknowledged more than once": sorted(line for line, count in whole.items() if count > 1),
        "lines were never written": sorted(line for line in counts if line.number > written.get((line.pod, line.rank), -1)),
        "lines are out of order": _disordered(printed),
    }
    return [f"{len(found)} {kind}, such as {_examples(found)}" for kind, found in kinds.items() if found]


def _disordered(printed: Sequence[Said]) -> list[Said]:
    newest: dict[tuple[str, int, str], int] = defaultdict(lambda: -1)
    found = []
    for line in printed:
        key = (line.pod, line.rank, line.stream)
        if line.number < newest[key]:
            found.append(line)
        newest[key] = max(newest[key], line.number)
    return found


def _examples(found: Sequence[Said]) -> str:
    return "; ".join(f"{line.pod} rank {line.rank} {line.stream} {line.number}" for line in found[:SHOWN])
