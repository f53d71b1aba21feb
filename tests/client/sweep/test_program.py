"""How a point reaches the program."""

import shlex

import pytest

from ebb.client.sweep.points import FLAGS, HYDRA, Point, words_of

POINT = Point(values=(("lr", "0.1"), ("b", "16")))


@pytest.mark.parametrize(
    ("words", "style", "found"),
    [
        ("train.py --epochs 5", FLAGS, "train.py --epochs 5 --lr 0.1 -b 16"),
        ("train.py --rate={lr} --twice {lr},{b}", FLAGS, "train.py --rate=0.1 --twice 0.1,16"),
        ("train.py {lr} --form '{epoch}'", FLAGS, "train.py 0.1 --form '{epoch}' -b 16"),
        ("train.py model=big", HYDRA, "train.py model=big lr=0.1 b=16"),
    ],
    ids=["flags", "placeholders", "one of each", "hydra"],
)
def test_words(words: str, style: str, found: str) -> None:
    assert list(words_of(shlex.split(words), POINT, style)) == shlex.split(found)


def test_what_hydra_removes_stays_removed_whatever_it_was() -> None:
    point = Point(values=(("~db", ""), ("~wd", "null"), ("name", "")))
    assert words_of(("train.py",), point, HYDRA) == ("train.py", "~db", "~wd=null", "name=")


def test_a_negative_value_is_no_flag_of_the_program() -> None:
    point = Point(values=(("shift", "-1e-3"), ("s", "-1")))
    assert words_of(("train.py",), point, FLAGS) == ("train.py", "--shift=-1e-3", "-s", "-1")
