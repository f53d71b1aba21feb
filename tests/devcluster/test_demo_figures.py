"""The demo's figures, on records written by hand."""

import pytest

from devcluster.demo import figures
from devcluster.demo.figures import ReclaimedMachine


def line(time: float, step: int, world_size: int, generation: int) -> figures.Line:
    return {"time": time, "step": step, "world_size": world_size, "generation": generation}


# Two workers; a notice at 12.5 during which one more step is made; alone from 20; two again from 31; killed at 33.2; alone; two.
LINES = [
    *(line(10.0 + i, i, 2, 1) for i in range(4)),
    *(line(20.0 + i, 4 + i, 1, 2) for i in range(3)),
    *(line(31.0 + i, 7 + i, 2, 3) for i in range(3)),
    *(line(45.0 + i, 9 + i, 1, 4) for i in range(2)),
    line(50.0, 11, 2, 5),
]
NOTICED = ReclaimedMachine(at=12.5, notice=True, wanted=2)
KILLED = ReclaimedMachine(at=32.5, notice=False, wanted=2)


@pytest.mark.parametrize(
    ("reclaim", "recovery", "full_size"),
    [
        pytest.param(NOTICED, 20.0 - 12.0, 31.0 - 12.5, id="steps during the notice do not count"),
        pytest.param(KILLED, 45.0 - 33.0, 50.0 - 32.5, id="without notice the last step of the generation counts"),
    ],
)
def test_recovery_and_full_size(reclaim: ReclaimedMachine, recovery: float, full_size: float) -> None:
    assert figures.recovery_seconds(LINES, reclaim) == pytest.approx(recovery)
    assert figures.full_size_seconds(LINES, reclaim) == pytest.approx(full_size)


def test_joining_counts_from_the_wish_to_the_first_common_step() -> None:
    assert figures.joined_seconds(LINES, asked_at=46.0, wanted=2) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("lines", "reclaim", "what"),
    [
        pytest.param([], NOTICED, "before 12.5", id="no steps at all"),
        pytest.param(LINES[:4], NOTICED, "after generation 1", id="never came back"),
        pytest.param(LINES[:5], NOTICED, None, id="came back smaller"),
    ],
)
def test_a_missing_record_is_said_and_never_a_number(
    lines: list[figures.Line], reclaim: ReclaimedMachine, what: str | None
) -> None:
    with pytest.raises(figures.MissingFigure, match=what or "2 workers"):
        figures.full_size_seconds(lines, reclaim)


def test_zones_are_counted_at_one_moment() -> None:
    moved = [["a", "a"], ["b"], []]
    assert figures.most_zones_at_once(moved) == 1
    assert figures.most_zones_at_once([["a"], ["a", "b"]]) == 2
