"""What a sweep varies, as it is typed: Hydra's words, values as texts, and errors that name the column."""

import pytest

from ebb.client.errors import BadRequest
from ebb.client.sweep.overrides import Interval, Values, is_override, parse


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("lr=0.1,0.01", ("0.1", "0.01")),
        ("lr=0.10", ("0.10",)),
        ("lr=0.1, 0.01", ("0.1", "0.01")),
        ("arch=resnet18,resnet50", ("resnet18", "resnet50")),
        ("arch=choice(resnet18,resnet50)", ("resnet18", "resnet50")),
        ("wd=range(0,0.1,0.05)", ("0", "0.05")),
        ("wd=range(0, 0.3, step=0.1)", ("0", "0.1", "0.2")),
        ("n=range(3)", ("0", "1", "2")),
        ("n=range(1,4)", ("1", "2", "3")),
        ("n=range(3,0,-1)", ("3", "2", "1")),
        ("n=range(10,40,10)", ("10", "20", "30")),
        ("n=8,range(16,48,16)", ("8", "16", "32")),
        ("text='a,b',\"c d\"", ("a,b", "c d")),
        ("layers=[64,64],[128,(1,2)]", ("[64,64]", "[128,(1,2)]")),
        ("model={size:1,depth:2},{size:2,depth:1}", ("{size:1,depth:2}", "{size:2,depth:1}")),
        ("path=/mnt/data/a.bin,s3://bucket/b", ("/mnt/data/a.bin", "s3://bucket/b")),
        ("lr=-0.1,1e-3", ("-0.1", "1e-3")),
        ("empty=''", ("",)),
    ],
)
def test_lists(word: str, values: tuple[str, ...]) -> None:
    assert parse([word]) == (Values(key=word.partition("=")[0], values=values),)


@pytest.mark.parametrize(
    ("word", "axis"),
    [
        ("wd=interval(0,0.1)", Interval(key="wd", low=0.0, high=0.1)),
        ("lr=tag(log, interval(1e-5, 1e-1))", Interval(key="lr", low=1e-5, high=0.1, log=True)),
        ("depth=int(interval(1,9))", Interval(key="depth", low=1.0, high=9.0, whole=True)),
        ("width=tag(log,int(interval(16,512)))", Interval(key="width", low=16.0, high=512.0, whole=True, log=True)),
    ],
)
def test_intervals(word: str, axis: Interval) -> None:
    assert parse([word]) == (axis,)


def test_keys_keep_their_order_and_their_pluses() -> None:
    assert [axis.key for axis in parse(["optimizer.lr=1", "+model/size=2", "weight-decay=3"])] == [
        "optimizer.lr",
        "+model/size",
        "weight-decay",
    ]


@pytest.mark.parametrize(
    ("word", "column", "said"),
    [
        ("lr", 3, "a name and '=' were expected"),
        ("=0.1", 1, "a name and '=' were expected"),
        ("lr=", 4, "a value is missing before the end"),
        ("lr=0.1,,0.01", 8, "a value is missing before ','"),
        ("lr=0.1,", 8, "a value is missing before the end"),
        ("lr=0.1,0.1", 4, "the value '0.1' is there twice"),
        ("lr=two words", 8, "'w' was not expected: put ',' between values, and quotes around odd ones"),
        ("lr='0.1", 4, "the quote ' is not closed"),
        ("layers=[1,2", 8, "the bracket '[' is not closed: put ']' at its end"),
        ("lr=log(0.1)", 4, "there is no function 'log': use choice(a,b), range(start,stop,step), interval(low,high)"),
        ("lr=0.1)", 7, "')' was not expected"),
        ("lr=choice(0.1", 14, "the end was not expected"),
        ("lr=choice(interval(0,1),2)", 4, "choice() takes values only"),
        ("lr=range(0,1,0)", 4, "a step of 0 never ends"),
        ("lr=range(0,1,0.0001)", 4, "the range holds 10000 values, and may hold 1 to 1000"),
        ("lr=range(5,1)", 4, "the range holds 0 values"),
        ("lr=range(a,b)", 10, "'a' is not a number: write range(start,stop,step)"),
        ("lr=range(0,inf)", 12, "'inf' has no end"),
        ("lr=range(0,1,2,3)", 4, "4 numbers are too many"),
        ("lr=interval(1)", 4, "1 numbers are too few: write interval(low,high)"),
        ("lr=interval(1,0)", 4, "1 is not less than 0"),
        ("lr=interval(0,1),2", 4, "an interval cannot stand beside other values"),
        ("lr=interval(0,1", 16, "')' was expected before the end"),
        ("lr=tag(lin,interval(0,1))", 8, "tag() takes log here"),
        ("lr=tag(log,interval(0,1))", 4, "0 has no logarithm: begin above 0"),
        ("lr=tag(log,0.1)", 4, "tag() takes an interval"),
        ("n=int(interval(0.2,0.8))", 3, "there is no whole number from 0.2 to 0.8"),
    ],
)
def test_errors_name_the_column(word: str, column: int, said: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse([word])
    assert str(caught.value).startswith(f"override {word!r}, column {column}: {said}")


def test_a_key_is_given_once_and_something_must_be() -> None:
    with pytest.raises(BadRequest, match="lr is given twice"):
        parse(["lr=1", "lr=2"])
    with pytest.raises(BadRequest, match="nothing to vary"):
        parse([])


def test_the_program_begins_at_the_first_word_that_is_no_override() -> None:
    words = ["lr=0.1,0.01", "+model.size=3", "python", "--lr=0.1", "train.py", "-m", "./a=b"]
    assert [is_override(word) for word in words] == [True, True, False, False, False, False, False]
