"""Requests to etcd and its answers: records, and their form in the JSON of etcd's v3 gateway. Pure.

In that JSON keys and values are base64, 64-bit numbers are texts, and what is zero or empty is left out.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union

from ebb.compat import dataclass


@dataclass(frozen=True, kw_only=True)
class Item:
    """A key as it was at one revision of etcd. `version` counts its writes since it was made; `lease` 0 is none."""

    key: str
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    version: int = 0
    lease: int = 0


@dataclass(frozen=True)
class KeyEvent:
    """A key was written, or is gone (then the item has only its key and mod_revision)."""

    item: Item
    deleted: bool = False


@dataclass(frozen=True)
class Compare:
    """True when that aspect of the key is this; for a key that does not exist all numbers are 0, and no value is equal."""

    key: str
    aspect: Literal["version", "create_revision", "mod_revision", "value"]
    equals: int | bytes


@dataclass(frozen=True)
class Put:
    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True)
class Delete:
    key: str


Op = Union[Put, Delete]


@dataclass(frozen=True, kw_only=True)
class Transaction:
    """All operations are done at one revision when all compares hold, else none."""

    compares: Sequence[Compare]
    operations: Sequence[Op]


_TARGETS = {"version": "VERSION", "create_revision": "CREATE", "mod_revision": "MOD", "value": "VALUE"}


def text(value: str | bytes) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def below(prefix: str) -> dict[str, str]:
    """The range of all keys that begin with the prefix: up to the prefix with its last byte raised."""
    raw = prefix.encode()
    return {"key": text(raw), "range_end": text(raw[:-1] + bytes([raw[-1] + 1]))}


def put(operation: Put) -> dict[str, Any]:
    return {"key": text(operation.key), "value": text(operation.value), "lease": str(operation.lease)}


def transaction(compares: Sequence[Compare], operations: Sequence[Op]) -> dict[str, Any]:
    return {"compare": [_compare(each) for each in compares], "success": [_operation(each) for each in operations]}


def _compare(compare: Compare) -> dict[str, Any]:
    equals = text(compare.equals) if isinstance(compare.equals, bytes) else str(compare.equals)
    return {"key": text(compare.key), "target": _TARGETS[compare.aspect], "result": "EQUAL", compare.aspect: equals}


def _operation(operation: Op) -> dict[str, Any]:
    if isinstance(operation, Put):
        return {"request_put": put(operation)}
    return {"request_delete_range": {"key": text(operation.key)}}


def item(found: Mapping[str, Any]) -> Item:
    return Item(
        key=base64.b64decode(found["key"]).decode(errors="replace"),
        value=base64.b64decode(found.get("value", "")),
        create_revision=int(found.get("create_revision", 0)),
        mod_revision=int(found.get("mod_revision", 0)),
        version=int(found.get("version", 0)),
        lease=int(found.get("lease", 0)),
    )


def event(found: Mapping[str, Any]) -> KeyEvent:
    return KeyEvent(item(found["kv"]), deleted=found.get("type") == "DELETE")


def revision(answer: Mapping[str, Any]) -> int:
    return int(answer.get("header", {}).get("revision", 0))
