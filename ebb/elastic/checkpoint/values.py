"""Values that torch.load refuses in a file, as a checkpoint holds them: dicts, lists, tensors and plain values.

    encode({"history": deque([1, 2], maxlen=9), "path": Path("/mnt")})    # raises TypeError for what cannot come back
    decode(encode(state)) == state

A checkpoint is read without running code in it (torch.load with weights_only). A numpy number or a deque in the state of a
registered object would be written and committed, and every start after that would refuse the file. Numpy's numbers of Python's
own width come back as Python's.
"""

import copy
import functools
import io
import pickle
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from pathlib import Path, PosixPath
from typing import Any

import numpy as np
import torch

from ebb.compat import zip

_KIND = "ebb.elastic.kind"  # the key by which a dict is known as a value of another kind
_PLAIN = (type(None), bool, int, float, str, bytes)
_ROWS = (list, tuple, deque, set, frozenset)
_DICTS = (dict, OrderedDict, Counter)
_LIKE_PYTHONS = "?dl"  # numpy's characters of bool, float64 and int64
_ENCODERS: dict[type, Callable[[Any], Any]] = {
    datetime: datetime.isoformat,
    date: date.isoformat,
    time: time.isoformat,
    timedelta: lambda value: [value.days, value.seconds, value.microseconds],
    PosixPath: str,
}


def encode(value: Any, name: str = "state") -> Any:
    """Copies of containers and arrays, and the very same tensors. `name` is what an error calls the value."""
    kind = type(value)
    if kind in _PLAIN or isinstance(value, torch.Tensor):
        return value if kind is not bytes or _reads_bytes() else {_KIND: "bytes", "value": value.decode("latin-1")}
    if isinstance(value, (np.ndarray, np.generic)) and not isinstance(value, np.ma.MaskedArray):  # its mask would be lost
        return _encode_numpy(value, name)
    if kind in _DICTS:
        return _encode_dict(value, name)
    if kind in _ROWS:
        items = [encode(each, f"{name}[{number}]") for number, each in enumerate(value)]
        tagged = {_KIND: kind.__name__, "value": items, "maxlen": getattr(value, "maxlen", None)}
        return kind(items) if kind in (list, tuple) else tagged
    if kind in _ENCODERS:
        return {_KIND: kind.__name__, "value": _ENCODERS[kind](value)}
    if not _torch_reads(value):
        raise TypeError(
            f"{name} is a {kind.__name__}, which a checkpoint cannot hold. Allowed are tensors, numbers, text, bytes, None, "
            "dicts, lists, tuples, sets, deques, numpy arrays, paths, dates and times: give one of them in its state_dict()"
        )
    return copy.copy(value)


def decode(value: Any) -> Any:
    kind = type(value)
    if kind in (list, tuple):
        return kind(decode(each) for each in value)
    if kind not in _DICTS:
        return value
    if _KIND in value:
        return _DECODERS[value[_KIND]](value)
    decoded = copy.copy(value)
    for key, each in value.items():
        decoded[key] = decode(each)
    return decoded


def _encode_dict(value: dict[Any, Any], name: str) -> dict[Any, Any]:
    keys = [encode(key, f"a key of {name}") for key in value]
    items = [encode(each, f"{name}[{key!r}]") for key, each in value.items()]
    if any(type(key) is not type(before) for key, before in zip(keys, value, strict=True)):  # it may be no key as it is now
        return {_KIND: "dict", "value": list(zip(keys, items, strict=True))}
    encoded = copy.copy(value)
    for key, each in zip(value, items, strict=True):  # a Counter's update() would add
        encoded[key] = each
    return encoded


def _encode_numpy(value: Any, name: str) -> Any:
    number = isinstance(value, np.generic)
    if number and value.dtype.char in _LIKE_PYTHONS:
        return value.item()
    if value.dtype.hasobject or value.dtype.names:
        raise TypeError(f"{name} is a numpy array of {value.dtype}, which a checkpoint cannot hold: give plain numbers or text")
    content = torch.from_numpy(np.frombuffer(value.tobytes(), np.uint8).copy())
    return {_KIND: "numpy", "value": content, "dtype": value.dtype.str, "shape": list(value.shape), "number": number}


def _decode_numpy(value: dict[str, Any]) -> Any:
    array = np.frombuffer(value["value"].numpy().tobytes(), np.dtype(value["dtype"])).reshape(value["shape"]).copy()
    return array[()] if value["number"] else array


_DECODERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "bytes": lambda value: value["value"].encode("latin-1"),
    "dict": lambda value: {decode(key): decode(each) for key, each in value["value"]},
    "deque": lambda value: deque(decode(value["value"]), value["maxlen"]),
    "set": lambda value: set(decode(value["value"])),
    "frozenset": lambda value: frozenset(decode(value["value"])),
    "numpy": _decode_numpy,
    "datetime": lambda value: datetime.fromisoformat(value["value"]),
    "date": lambda value: date.fromisoformat(value["value"]),
    "time": lambda value: time.fromisoformat(value["value"]),
    "timedelta": lambda value: timedelta(*value["value"]),
    "PosixPath": lambda value: Path(value["value"]),
}


@functools.cache
def _reads_bytes() -> bool:
    """False beside torch 2.1 to 2.4: Python makes a call of bytes in a pickle of that kind, and torch refuses it."""
    return _torch_reads(b"\xff")


def _torch_reads(value: Any) -> bool:
    """True if a file with this value can be read; it asks torch, whose list of types grows."""
    file = io.BytesIO()
    try:
        torch.save(value, file)
        torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    except (pickle.PickleError, AttributeError, TypeError, RuntimeError):
        return False
    return True
