"""Fixtures of the tests of the week."""

import time
from collections.abc import Callable

import pytest

from tests.benchmarks.weeks import Scene


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the clock."""
    real, passed = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: real() + passed[0])

    def wait(seconds: float) -> None:
        passed[0] += seconds

    return wait
