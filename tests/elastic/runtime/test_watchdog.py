"""Limits of steps: one for the first, one for the others, none for what is no step but the long one."""

import threading

from ebb.elastic.runtime.watchdog import Watchdog

SECONDS = 30.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def watched(clock: Clock) -> tuple[Watchdog, list[str], threading.Event]:
    said: list[str] = []
    done = threading.Event()

    def act(sentence: str) -> None:
        said.append(sentence)
        done.set()

    return Watchdog(first_seconds=1800, steady_seconds=240, act=act, clock=clock), said, done


def test_the_first_step_has_the_long_limit() -> None:
    clock = Clock()
    watchdog, said, done = watched(clock)
    clock.now += 1799
    watchdog.start()  # the time until here is not the first step's
    clock.now += 1801
    watchdog.poke()
    assert done.wait(SECONDS)
    assert said == ["the first step of this generation has not ended within 1800 s: a machine hangs, or the limit is too short"]


def test_a_later_step_has_the_short_limit() -> None:
    clock = Clock()
    watchdog, said, done = watched(clock)
    watchdog.start()
    clock.now += 1700
    watchdog.beat()
    clock.now += 239
    watchdog.poke()
    assert not done.wait(0.05)
    clock.now += 2
    watchdog.poke()
    assert done.wait(SECONDS)
    assert said == ["step 2 of this generation has not ended within 240 s: a machine hangs, or the limit is too short"]


def test_what_is_no_step_has_the_long_limit() -> None:
    clock = Clock()
    watchdog, _, done = watched(clock)
    watchdog.start()
    watchdog.beat()
    with watchdog.unhurried():
        clock.now += 1700
        watchdog.poke()
        assert not done.wait(0.05)
    clock.now += 239
    watchdog.poke()
    assert not done.wait(0.05)
    watchdog.stop()
    clock.now += 9999
    watchdog.poke()
    assert not done.wait(0.05)
