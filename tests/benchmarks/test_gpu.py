"""The promises that are judged where there is a GPU."""

from typing import Any

import pytest

from benchmarks.gpu.__main__ import CASES, PROMISES, judge

CHANGE = {"in_memory_seconds": 3.0, "transfer_seconds": 1.5}
SNAPSHOTS = {"longest_with": 1.2, "longest_without": 0.3}
KEPT: dict[str, Any] = {
    "device": "NVIDIA H100 80GB HBM3",
    "check": {"faults": []},
    "change": {"loss": CHANGE, "join": CHANGE},
    "hang": {"collectives": 3},
    "trace": {"kernels": 100},
    "images": SNAPSHOTS | {"share": 0.02, "overhead": 0.01},
    "text": SNAPSHOTS | {"share": -0.01, "overhead": 0.05},
    "memory": {"halved": [[512, 1, 256]], "difference": 1e-5},
}


def test_kept_promises_are_not_called_broken() -> None:
    assert judge(KEPT) == []
    assert KEPT.keys() - {"device"} == CASES.keys() == PROMISES.keys()


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("check", {"faults": ["it computes wrongly"]}),
        ("change", {"loss": CHANGE, "join": {"in_memory_seconds": 3.6, "transfer_seconds": 1.5}}),
        ("hang", {"collectives": 0}),
        ("trace", {"kernels": 0}),
        ("images", SNAPSHOTS | {"share": 0.04, "overhead": 0.01}),
        ("text", SNAPSHOTS | {"share": 0.08, "overhead": 0.05}),
        ("text", {"share": 0.0, "overhead": 0.05, "longest_with": 6.5, "longest_without": 0.3}),
        ("memory", {"halved": [], "difference": 0.0}),
        ("memory", {"halved": [[512, 1, 256]], "difference": 0.01}),
    ],
)
def test_a_broken_promise_is_named(name: str, broken: dict[str, Any]) -> None:
    (sentence,) = judge(KEPT | {name: broken})
    assert sentence.startswith(PROMISES[name])
