"""Fixtures of the tests of benchmarks."""

import threading
import time
from collections.abc import Callable

import pytest

from benchmarks.exact import machines
from tests.benchmarks.weeks import Scene


@pytest.fixture(autouse=True)
def nobody_has_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that fails makes all waits of its process end; those of the tests after it are not to."""
    monkeypatch.setattr(machines, "given_up", threading.Event())


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
