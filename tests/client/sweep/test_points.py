"""Which runs a sweep has: all combinations, or the same drawn ones for the same seed, whatever Python runs this."""

import pytest

from ebb.client.errors import BadRequest
from ebb.client.sweep.overrides import parse
from ebb.client.sweep.points import Point, draw, grid, job_name, points_of


def texts(points: tuple[Point, ...]) -> list[str]:
    return [str(point) for point in points]


def test_a_grid_has_every_combination_in_order() -> None:
    axes = parse(["lr=0.1,0.01", "wd=range(0,0.1,0.05)"])
    assert texts(points_of(axes, None, 0)) == ["lr=0.1 wd=0", "lr=0.1 wd=0.05", "lr=0.01 wd=0", "lr=0.01 wd=0.05"]


def test_drawn_points_are_pinned_by_their_seed() -> None:
    axes = parse(["lr=tag(log,interval(1e-5,1e-1))", "wd=interval(0,0.1)", "depth=int(interval(1,9))", "arch=a,b"])
    assert texts(draw(axes, 3, seed=0)) == PINNED
    assert draw(axes, 3, seed=1) != draw(axes, 3, seed=0)


PINNED = [
    "lr=0.0238609 wd=0.0757954 depth=4 arch=a",
    "lr=0.00110943 wd=0.0404934 depth=8 arch=a",
    "lr=0.000806098 wd=0.0583382 depth=9 arch=b",
]


def test_more_points_keep_the_first_ones() -> None:
    axes = parse(["lr=interval(0,1)", "arch=a,b"])
    assert draw(axes, 20, seed=5)[:10] == draw(axes, 10, seed=5)


def test_drawn_numbers_stay_within_and_reach_their_ends() -> None:
    axes = parse(["lr=tag(log,interval(1e-4,1e-2))", "n=int(interval(2,4))"])
    points = [dict(point.values) for point in draw(axes, 300, seed=0)]
    rates = [float(point["lr"]) for point in points]
    assert 1e-4 <= min(rates) < 1.1e-4
    assert 0.9e-2 < max(rates) <= 1e-2
    assert 0.4 < sum(rate < 1e-3 for rate in rates) / 300 < 0.6  # half of them below the middle by logarithm
    assert {point["n"] for point in points} == {"2", "3", "4"}


def test_no_point_is_drawn_twice_and_few_are_all() -> None:
    axes = parse(["a=1,2,3", "n=int(interval(1,3))"])
    assert len(set(draw(axes, 8, seed=0))) == 8
    assert len(draw(axes, 50, seed=0)) == 9


def test_a_name_says_what_the_run_holds() -> None:
    one, other = (Point(values=(("lr", "0.1"), ("wd", "0"))), Point(values=(("wd", "0"), ("lr", "0.1"))))
    assert job_name("scan", one) == job_name("scan", other) == "scan-b3209d2f"
    assert job_name("scan", Point(values=(("lr", "0.1"), ("wd", "0.0")))) != job_name("scan", one)


@pytest.mark.parametrize(
    ("words", "number", "said"),
    [
        (["lr=interval(0,1)"], None, "lr is an interval, of which a grid has no end: add --random 20"),
        (["a=range(100)", "b=range(11)"], None, "the grid has 1,100 points of at most 1,000"),
        (["a=1,2"], 0, "random 0 is not a number of points: use 1 to 1,000"),
        (["a=1,2"], 1001, "random 1001 is not a number of points"),
        (["a=interval(1,1.0000001)"], 1000, "there are hardly so many different points"),
    ],
)
def test_refusals(words: list[str], number: int | None, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        points_of(parse(words), number, 0)


def test_the_grid_refuses_before_it_counts_them_all() -> None:
    with pytest.raises(BadRequest, match="1,000,000,000 points"):
        grid(parse([f"{key}=range(1000)" for key in "abc"]))
