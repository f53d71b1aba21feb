"""Points of a sweep, and how each reaches the program. Pure, and the same for the same arguments.

points = grid(axes)                          # the last key varies fastest
points = drawn(axes, number=20, seed=0)      # the first 10 of 20 are the 10 of 10
job_name("lr-scan", points[0])               # lr-scan-1f0c93ab: by what it holds, wherever it stands in the sweep

words_of(("train.py", "--epochs", "5"), point, FLAGS)         # train.py --epochs 5 --lr 0.1
words_of(("train.py", "--rate={lr}"), point, FLAGS)           # train.py --rate=0.1
words_of(("train.py",), point, HYDRA)                         # train.py lr=0.1
"""

import hashlib
import itertools
import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ebb.client.errors import BadRequest
from ebb.client.sweep.overrides import Axis, Interval, Values

MOST_POINTS = 1000  # a job each
_HASH_LETTERS = 8  # two of 1,000 points share 8 hexadecimal letters once in 8,600 sweeps
_DIGITS = 6  # significant ones of a number that was drawn


@dataclass(frozen=True, kw_only=True)
class Point:
    """One run of a sweep: the value of each key, in the order in which the keys were given."""

    values: tuple[tuple[str, str], ...]
    number: int | None = None  # of a run whose values are yet to be chosen

    def __str__(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.values)


def points_of(axes: Sequence[Axis], number: int | None, seed: int) -> tuple[Point, ...]:
    """Drawn where a number is given, else all. Raises BadRequest."""
    return grid(axes) if number is None else draw(axes, number, seed)


def grid(axes: Sequence[Axis]) -> tuple[Point, ...]:
    """Every combination. Raises BadRequest for an interval, which has no end of them, and for more than MOST_POINTS."""
    for axis in axes:
        if isinstance(axis, Interval):
            raise BadRequest(f"{axis.key} is an interval, of which a grid has no end: add --random 20, or list its values.")
    lists = [_values(axis) for axis in axes]
    if (total := math.prod(map(len, lists))) > MOST_POINTS:
        raise BadRequest(f"the grid has {total:,} points of at most {MOST_POINTS:,}: list fewer values, or add --random 50.")
    return tuple(_point(axes, values) for values in itertools.product(*lists))


def draw(axes: Sequence[Axis], number: int, seed: int) -> tuple[Point, ...]:
    """`number` different points; fewer where there are no more. Raises BadRequest."""
    if not 1 <= number <= MOST_POINTS:
        raise BadRequest(f"random {number} is not a number of points: use 1 to {MOST_POINTS:,}.")
    listed = [_listed(axis) for axis in axes]
    if all(isinstance(axis, Values) for axis in listed) and math.prod(len(_values(axis)) for axis in listed) <= number:
        return grid(listed)
    # Only random() of Python's generator is promised to give the same numbers in every version.
    source = random.Random(seed)  # noqa: S311 - no secret
    found: dict[Point, None] = {}
    for _ in range(100 * MOST_POINTS):
        if len(found) == number:
            return tuple(found)
        found[_point(axes, [_value(axis, source.random()) for axis in axes])] = None
    raise BadRequest(f"random {number}: there are hardly so many different points. Ask for fewer, or widen the intervals.")


def job_name(sweep: str, point: Point) -> str:
    """The name of a point's job. The order of the keys does not matter, so that the command may be written anew."""
    if point.number is not None:
        return f"{sweep}-{point.number:03}"
    text = json.dumps(dict(sorted(point.values)), sort_keys=True)
    return f"{sweep}-{hashlib.sha256(text.encode()).hexdigest()[:_HASH_LETTERS]}"


def _point(axes: Sequence[Axis], values: Sequence[str]) -> Point:
    return Point(values=tuple((axis.key, value) for axis, value in zip(axes, values, strict=True)))


def _values(axis: Axis) -> tuple[str, ...]:
    return axis.values if isinstance(axis, Values) else ()


def _listed(axis: Axis) -> Axis:
    """A short interval of whole numbers as their list: there are only so many points."""
    if isinstance(axis, Values) or not axis.whole or axis.high - axis.low > MOST_POINTS:
        return axis
    return Values(key=axis.key, values=tuple(map(str, range(math.ceil(axis.low), math.floor(axis.high) + 1))))


def _value(axis: Axis, share: float) -> str:
    """The value at `share`, from 0 to 1, of an axis."""
    if isinstance(axis, Values):
        return axis.values[int(share * len(axis.values))]
    if axis.whole:
        low, high = math.ceil(axis.low), math.floor(axis.high)
        number = _between(low, high + 1, share, log=axis.log)
        return str(min(high, int(number)))
    return f"{_between(axis.low, axis.high, share, log=axis.log):.{_DIGITS}g}"


def _between(low: float, high: float, share: float, *, log: bool) -> float:
    if log:
        return math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    return low + share * (high - low)


FLAGS, HYDRA = "flags", "hydra"


def words_of(words: Iterable[str], point: Point, style: str) -> tuple[str, ...]:
    """The program's words with the point in them: at {key} where that is written, else at the end."""
    given, placed = list(words), set[str]()
    for key, value in point.values:
        mark = f"{{{key}}}"
        if any(mark in word for word in given):
            given = [word.replace(mark, value) for word in given]
            placed.add(key)
    rest = [pair for pair in point.values if pair[0] not in placed]
    return (*given, *(word for key, value in rest for word in _words(key, value, style)))


def _words(key: str, value: str, style: str) -> tuple[str, ...]:
    if style == HYDRA:
        if key.startswith("~") and not value:  # `~db` removes db whatever it is, `~db=` only an empty one
            return (key,)
        return (f"{key}={value}",)
    flag = f"-{key}" if len(key) == 1 else f"--{key}"
    if value.startswith("-") and len(key) > 1:  # argparse would take most of them for a flag
        return (f"{flag}={value}",)
    return (flag, value)
