"""What the probes are told: about silent watches, a queue that stands still, and a follower that hears nothing."""

from dataclasses import dataclass, field

import pytest

from ebb.controller.metrics import (
    QUEUE_DEPTH,
    RECONCILE_SECONDS,
    SILENT_SECONDS,
    STUCK_SECONDS,
    UNHEARD_SECONDS,
    WATCH_AGE,
    Health,
    Metrics,
)


@dataclass
class World:
    """A controller as the probes see it."""

    leads: bool = True
    unheard_seconds: float = 0.0
    now: float = 0.0
    waiting: int = 0
    ages: dict[str, float] = field(default_factory=lambda: {'kind="pods"': 20.0, 'kind="nodes"': 5.0})

    def __post_init__(self) -> None:
        self.metrics = Metrics()
        self.metrics.gauge(QUEUE_DEPTH, "Depth.", lambda: {"": self.waiting})
        self.metrics.gauge(WATCH_AGE, "Age.", lambda: self.ages)
        self.health = Health(self.metrics, self, lambda: self.now)

    def pass_time(self, seconds: float, *, looks: bool = False) -> None:
        """With a probe every 10 s."""
        for _ in range(int(seconds / 10)):
            self.now += 10
            if looks:
                self.metrics.observe(RECONCILE_SECONDS, 0.1)
            self.health.sick()


def test_a_leader_whose_watches_speak_is_well() -> None:
    world = World()
    assert (world.health.sick(), world.health.not_ready()) == ("", "")


def test_one_silent_watch_is_enough() -> None:
    world = World()
    world.ages['kind="pods"'] = SILENT_SECONDS + 1
    assert 'kind="pods"' in world.health.sick()
    assert "nodes" not in world.health.sick()
    assert world.health.not_ready() == world.health.sick()


def test_a_follower_is_well_whatever_its_watches_do() -> None:
    world = World(leads=False, waiting=3, ages={'kind="pods"': 10 * SILENT_SECONDS})
    world.pass_time(2 * STUCK_SECONDS)
    assert (world.health.sick(), world.health.not_ready()) == ("", "")


def test_a_follower_that_cannot_read_the_lease_is_not_ready_but_need_not_be_started_again() -> None:
    world = World(leads=False, unheard_seconds=UNHEARD_SECONDS + 1)
    assert (world.health.sick(), world.health.not_ready()) == ("", "the Lease could not be read for 31 s")


def test_jobs_that_wait_while_none_is_looked_at_are_a_loop_that_is_stuck() -> None:
    world = World(waiting=2)
    world.pass_time(STUCK_SECONDS)
    assert world.health.sick() == ""
    world.pass_time(20)
    assert world.health.sick() == "2 jobs wait, and none was looked at for 310 s"


@pytest.mark.parametrize(("waiting", "looks"), [(0, False), (500, True)], ids=["idle", "busy"])
def test_neither_an_idle_nor_a_busy_loop_is_stuck(waiting: int, looks: bool) -> None:
    world = World(waiting=waiting)
    world.pass_time(3 * STUCK_SECONDS, looks=looks)
    assert world.health.sick() == ""


def test_who_comes_to_lead_late_is_not_blamed_for_the_time_before() -> None:
    world = World(leads=False, waiting=0)
    world.pass_time(3 * STUCK_SECONDS)
    world.leads, world.waiting = True, 500
    assert world.health.sick() == ""
