"""What is done to the controller while jobs start, lose machines, fail, scale, pause, end: the short form of benchmarks/faults.

In every one of them: never two pods of one index alive, never more than maxReplicas, every job ends as its model says, and of the
budget only failures of the program are spent, each once.
"""

import random

from tests.apiserver import faults
from tests.apiserver.stage import Stage

# A machine is silent after a third of the real time, so that all of them are while the API server is away.
AWAY = {"ebb.controller.node_heartbeats.LEAST_SECONDS": 4.0, "ebb.controller.node_heartbeats.SETTLE_SECONDS": 4.0}


async def test_a_controller_that_is_killed_at_any_point_loses_nothing(on: Stage) -> None:
    figures = await faults.killed(on, points=5, rng=random.Random(5), jobs=4)
    assert figures["kills_at_writes"] >= 4


async def test_a_leader_that_cannot_renew_stops_before_the_other_begins(on: Stage) -> None:
    await faults.cut_off(on)


async def test_of_two_that_believe_to_lead_only_one_writes(on: Stage) -> None:
    await faults.frozen(on)


async def test_a_leader_whose_lease_is_taken_stops(on: Stage) -> None:
    await faults.usurped(on)


async def test_watches_that_go_silent_are_noticed(on: Stage) -> None:
    await faults.deafened(on, times=1)


async def test_refusals_and_lost_answers_are_got_over(on: Stage) -> None:
    figures = await faults.refused(on, rate=0.25, steps=12, rng=random.Random(5))
    assert figures["refusals"] > 10


async def test_a_clock_that_is_hours_off_spends_and_loses_nothing(on: Stage) -> None:
    await faults.skewed(on, hours=(2, -2, 0), steps=5)


async def test_a_token_is_never_used_past_its_end(on: Stage) -> None:
    on.limits = {**on.limits, "ebb.kube.credentials.READ_SECONDS": 1.0}
    await faults.tokens(on, times=1, lives_seconds=1.5)


async def test_nothing_is_deleted_while_the_api_server_is_away_and_all_heartbeats_are_late(on: Stage) -> None:
    """By a controller that lives through it: one that is started again knows of no machine that it was late."""
    election = "ebb.controller.election."
    on.limits = {**on.limits, **AWAY, election + "RENEW_SECONDS": 60.0, election + "DURATION_SECONDS": 90}
    figures = await faults.away(on, seconds=7, back_seconds=3, watched_seconds=9)
    assert figures["controller_started_again"] == 0


async def test_an_api_server_that_is_restarted_costs_nothing(on: Stage) -> None:
    await faults.restarted(on, times=1)
