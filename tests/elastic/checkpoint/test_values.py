"""Values of a registered object's state that torch.load refuses come back from a checkpoint, or are refused at once."""

import io
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ebb.elastic.checkpoint import values
from ebb.elastic.checkpoint.values import decode, encode

VALUES: dict[str, Any] = {
    "numpy-number": np.float64(0.25),
    "narrow-numpy-number": np.float32(0.1),
    "numpy-truth": np.bool_(True),
    "numpy-array": np.arange(6, dtype=np.int16).reshape(2, 3),
    "numpy-of-nothing": np.zeros((0, 3)),
    "numpy-text": np.array(["a", "bc"]),
    "numpy-date": np.datetime64("2026-11-23T08:00"),
    "deque": deque([1.0, deque(["a"])], maxlen=4),
    "path": Path("/mnt/output/job"),
    "datetime": datetime(2026, 11, 23, 8, 45, 1, 7, tzinfo=UTC),
    "naive-datetime": datetime(2026, 11, 23),  # programs have them
    "date": date(2026, 11, 23),
    "time": time(8, 45),
    "timedelta": timedelta(days=-1, microseconds=3),
    "plain": [None, True, 1, 2.5, "text", b"bytes", 1j, {1, 2}, (1, [2])],
    "sets": [{Path("a"), (1, Path("b"))}, {np.int64(3)}, frozenset({1}), set()],
    "dicts": OrderedDict(a=Counter("aab"), b={3: "int", (1, "x"): "tuple"}),
    "odd-keys": {np.int64(3): 1, Path("a"): 2},
    "of-torch": [torch.Size([1, 2]), torch.float16, torch.device("cpu")],
}


def through_a_file(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(encode(state), file)
    return decode(torch.load(io.BytesIO(file.getvalue()), weights_only=True))


@pytest.mark.parametrize("name", VALUES)
def test_it_comes_back(name: str) -> None:
    value = VALUES[name]
    found = through_a_file({"inner": [value]})["inner"][0]
    if isinstance(value, np.ndarray):
        assert (found.dtype, found.shape, found.tolist()) == (value.dtype, value.shape, value.tolist())
        found[:] = found[:]  # it may be written to, as before
        return
    assert found == value
    assert type(found) is (type(value.item()) if isinstance(value, np.float64 | np.bool_) else type(value))


def test_the_bound_of_a_deque_comes_back() -> None:
    assert through_a_file(deque([1], maxlen=4)).maxlen == 4


def test_tensors_are_the_same_ones() -> None:
    """A checkpoint's snapshot copies them, and knows tied weights by their address."""
    tensor = torch.arange(3.0)
    assert encode({"a": deque([tensor])})["a"]["value"][0] is tensor


def test_what_changes_later_is_not_in_it() -> None:
    history, seen, array = deque([1]), {1}, np.ones(1)
    encoded = encode([history, seen, array])
    history.append(2)
    seen.add(2)
    array[:] = 2
    assert decode(encoded) == [deque([1]), {1}, np.ones(1)]


class Own:
    pass


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"best": {"model": [Own()]}}, r"ema\['best'\]\['model'\]\[0\] is a Own, which a checkpoint cannot hold"),
        (defaultdict(list), "ema is a defaultdict"),
        (np.array([Own()]), "ema is a numpy array of object"),
        ({Own()}, r"ema\[0\] is a Own"),
        (np.ma.MaskedArray([1, 2], mask=[False, True]), "ema is a MaskedArray"),
        ({"f": len}, r"ema\['f'\] is a builtin_function_or_method"),
    ],
)
def test_what_cannot_come_back_is_refused_by_its_place(state: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        encode(state, "ema")


def test_bytes_come_back_where_torch_refuses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside torch 2.1 to 2.4."""
    monkeypatch.setattr(values, "_reads_bytes", lambda: False)
    state = {"buffer": bytes(range(256)), b"key": 1}
    encoded = encode(state)
    assert not [each for pair in encoded["value"] for each in pair if isinstance(each, bytes)]
    assert decode(encoded) == state
