"""The checker of the logs' proof: it sees a line that is lost, doubled, made up or out of order, and nothing in a right run."""

from collections.abc import Callable

import pytest

from benchmarks.logs.judge import Said, acknowledged, judge, parse_said

LINES = [Said("pod-0", 1, "err" if number % 10 == 0 else "out", number) for number in range(30)]
OTHERS = [Said("pod-2", 1, line.stream, line.number) for line in LINES]
MADE_UP = Said("pod-0", 1, "out", 36)
WRITTEN = {("pod-0", 1): 35, ("pod-2", 1): 30}  # five lines of pod-0 were on their way when it was killed


def problems(printed: list[Said], acked: list[Said] | None = None) -> list[str]:
    return judge(LINES + OTHERS if acked is None else acked, printed, written=WRITTEN, undisturbed={"pod-2"})


def test_a_run_that_is_right() -> None:
    assert problems(LINES + OTHERS) == []
    assert problems([*LINES, LINES[-1]._replace(number=34), *OTHERS]) == [], "more than was acknowledged may be there"


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        pytest.param(lambda all: all[:7] + all[8:], "1 acknowledged lines are missing, such as pod-0 rank 1 out 7", id="lost"),
        pytest.param(lambda all: all[:59], "1 lines of ranks that nobody killed are missing, such as pod-2", id="at-the-end"),
        pytest.param(lambda all: all[:4] + all[3:], "1 lines are printed more than once, such as pod-0 rank 1 out", id="doubled"),
        pytest.param(lambda all: [*all[:30], MADE_UP, *all[30:]], "1 lines were never written", id="made-up"),
        pytest.param(lambda all: [*all[:8], all[9], all[8], *all[10:]], "1 lines are out of order", id="swapped"),
    ],
)
def test_what_is_planted_is_found(plant: Callable[[list[Said]], list[Said]], words: str) -> None:
    found = problems(plant(LINES + OTHERS), LINES + OTHERS[:-1] if "nobody" in words else None)
    assert len(found) == 1
    assert found[0].startswith(words)


def test_a_ledger_with_a_line_twice_is_told_from_a_reader_that_prints_it_twice() -> None:
    assert problems(LINES + OTHERS, [*LINES, LINES[0], *OTHERS]) == [
        "1 lines were acknowledged more than once, such as pod-0 rank 1 err 0"
    ]


def test_the_lines_of_a_ledger() -> None:
    ledger = (
        b"2026-11-22T12:58:54.000000001Z -.-.err [launcher 12:58:54] machine 0 of 1\n"
        b"2026-11-22T12:58:54.000000001Z 1.1.out pod-0 1 out 4 loss 1.2\n"
        b"2026-11-22T12:58:54.000000001Z 1.1.out pod-0 1 out 5 lo"
    )
    assert acknowledged(ledger) == [Said("pod-0", 1, "out", 4)]
    with pytest.raises(ValueError, match="this is no line of a log file"):
        acknowledged(b"pod-0 1 out 4\n")


def test_what_no_rank_has_said() -> None:
    assert parse_said("[launcher 12:58:54] meeting the other machines of the job") is None
