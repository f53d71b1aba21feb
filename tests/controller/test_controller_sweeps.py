"""Sweeps that nobody watches: the controller stops the worst, promotes the best, and loses nothing when it or a machine goes."""

import json
import math
import random
from collections.abc import Sequence
from typing import Any, cast

import pytest

from ebb.api.parts import Halving
from ebb.api.platform import parse as parse_platform
from ebb.client import Ebb, Request
from ebb.client.report import SweepReport, make
from ebb.client.sweep import SweepPlan, asha, parse, points_of, prepared, show, stop_worst
from ebb.client.sweep.points import Point
from ebb.kube import ELASTIC_JOBS, Kube, Object
from tests.cli.world import FakeKube, platform_json
from tests.client.report.volume import Volume
from tests.controller.training import NS, Town
from tests.fake_time import run
from tests.world import started

STOPPED, PAUSED, DONE = "AmongTheWorst", "PausedBySweep", "Succeeded"


def bodies(points: Sequence[Point], halving: Halving | None = None, *, at_once: int | None = None) -> list[Object]:
    """The jobs that `ebb sweep` sends."""
    platform = parse_platform({"schema": "1", "platform.json": json.dumps(platform_json())})
    request = Request(name="scan", arguments=("train.py",))
    plan = SweepPlan(name="scan", request=request, points=tuple(points), max_parallel=at_once, halving=halving)
    nobody = cast(Kube, None)  # it is made without asking anybody
    return [item.body for item in prepared(Ebb(kube=nobody, platform=platform, namespace=NS), plan)]


def rates(*values: str) -> tuple[Point, ...]:
    return points_of(parse([f"lr={','.join(values)}"]), None, 0)


def by_rate(lr: float, step: int) -> float:
    """The smaller the rate, the better, at every step."""
    return lr + 1 / step


def over(town: Town) -> bool:
    return all(state in (STOPPED, PAUSED, DONE, "Failed") for state in town.states().values())


def hold(town: Town, name: str) -> dict[str, Any]:
    found: dict[str, Any] = town.world.status(name)["hold"]
    return found


def test_the_worst_are_stopped_though_nobody_watches() -> None:
    async def story() -> None:
        async with started() as world:
            town = Town(world, machines=4, curve=by_rate, total_steps=60)
            names = await town.submit(bodies(rates("1", "2", "3", "4"), stop_worst(0.5, after=10)))
            await town.until(lambda: over(town))
            assert [town.states()[name] for name in names] == [DONE, STOPPED, STOPPED, STOPPED]
            message = hold(town, names[3])["message"]
            assert "at step 10 is among the worst 50% of" in message
            assert message.endswith(f"Continue it: ebb resume {names[3]}")
            assert world.status(names[3])["progress"]["step"] < 20

    run(story())


def test_a_stopped_run_that_is_resumed_goes_on_to_its_end() -> None:
    """A larger maxParallel, which is a change of its spec too, does not let it go on."""

    async def story() -> None:
        async with started() as world:
            town = Town(world, machines=2, curve=by_rate, total_steps=60)
            good, bad = await town.submit(bodies(rates("1", "2"), stop_worst(0.5, after=10)))
            await town.until(lambda: over(town))
            assert town.states() == {good: DONE, bad: STOPPED}

            def edit(job: Object, **group: Any) -> None:
                job["metadata"]["generation"] = job["metadata"].get("generation", 1) + 1
                job["spec"]["group"] |= group

            world.api.change(ELASTIC_JOBS, bad, lambda job: edit(job, maxParallel=9))
            for _ in range(60):
                await town.second()
            assert town.states()[bad] == STOPPED
            world.api.change(ELASTIC_JOBS, bad, lambda job: edit(job, halving=None))
            await town.until(lambda: town.states()[bad] == DONE)
            assert world.status(bad)["progress"]["step"] == 60

    run(story())


def test_asha_pauses_all_and_promotes_the_best_of_every_three() -> None:
    """Nine runs, two at a time, rungs at 9, 27 and 81: three go on from the first, one from the second."""

    async def story() -> None:
        async with started() as world:
            town = Town(world, machines=2, curve=by_rate, total_steps=81)
            names = await town.submit(bodies(rates(*"987654321"), asha(3, after=9), at_once=2))
            await town.until(lambda: over(town))
            await town.second()
            assert town.most_at_once == 2
            best = names[-1]
            assert town.states()[best] == DONE
            assert [town.states()[name] for name in names[:-1]] == [PAUSED] * 8
            assert world.status(best)["sweep"]["promotions"] == 2
            promoted = [name for name in names if world.status(name)["sweep"].get("promotions")]
            assert len(promoted) >= 3, "of nine at the first rung the best three, and those that were among them on the way"
            assert {rung["step"] for rung in world.status(best)["sweep"]["rungs"]} == {9, 27, 81}
            spent = sum(world.status(name)["progress"]["step"] for name in names)
            assert spent < 9 * 81 / 2

    run(story())


def test_a_promoted_run_goes_before_those_that_never_trained() -> None:
    async def story() -> None:
        async with started() as world:
            town = Town(world, machines=1, curve=by_rate, total_steps=81)
            await town.submit(bodies(rates(*"2143"), asha(2, after=9), at_once=1))
            await town.until(lambda: any(world.status(name).get("sweep", {}).get("promotions") for name in town.runs))
            assert len(town.started) == 2, "as soon as two have come to the rung, the better one goes on"

    run(story())


def test_a_controller_that_is_killed_loses_nothing_of_a_sweep() -> None:
    async def story(kills: tuple[int, ...]) -> dict[str, str]:
        async with started() as world:
            town = Town(world, machines=2, curve=by_rate, total_steps=81)
            await town.submit(bodies(rates(*"987654321"), asha(3, after=9), at_once=2))
            for second in range(3000):
                await town.second()
                if second in kills:
                    await world.kill()
                    world.start()
                if second > max(kills, default=0) and over(town):
                    return town.states()
            raise AssertionError(town.states())

    undisturbed = run(story(()))
    assert sorted(undisturbed.values()) == sorted([DONE, *[PAUSED] * 8])
    for kills in ((30, 31, 32), (60, 200), tuple(range(20, 400, 37))):
        found = run(story(kills))
        assert [name for name, state in found.items() if state == DONE] == [
            name for name, state in undisturbed.items() if state == DONE
        ]


@pytest.mark.parametrize("seed", range(10))
def test_ten_sweeps_with_a_reclaim_in_each(seed: int) -> None:
    """Every run that finishes has N of N steps, and status, table, report and files name one winner."""
    total, source = 47, random.Random(seed)
    rule = (None, stop_worst(0.5, after=8), asha(2, after=8))[seed % 3]
    points = points_of(parse(["lr=tag(log,interval(1e-3,1))"]), 6, seed)

    def curve(lr: float, step: int) -> float:
        return abs(math.log10(lr) + 1.5) + 2 / step

    async def story() -> tuple[Town, list[Object]]:
        async with started() as world:
            town = Town(world, machines=3, curve=curve, total_steps=total)
            names = await town.submit(bodies(points, rule, at_once=3))
            due = source.randrange(5, 60)
            reclaimed = False
            for second in range(6000):
                await town.second()
                if second >= due and not reclaimed:
                    reclaimed = any(town.reclaim(name) for name in source.sample(names, len(names)))
                if reclaimed and over(town):
                    break
            await world.settle(60)
            assert sum(world.status(name).get("reclaims", 0) for name in names) == 1
            return town, [world.job(name) for name in names]

    town, jobs = run(story())
    finished = [job for job in jobs if job["status"]["state"] == DONE]
    assert len(finished) == (6 if rule is None else len(finished)) >= 1
    for job in finished:
        assert (job["status"]["progress"]["step"], job["status"]["progress"]["totalSteps"]) == (total, total)
    truth = min(finished, key=lambda job: town.loss(job["metadata"]["name"], total))["metadata"]["name"]
    by_status = min(finished, key=lambda job: job["status"]["progress"]["loss"])["metadata"]["name"]
    assert by_status == truth
    run(_all_say(jobs, town, truth))


async def _all_say(jobs: list[Object], town: Town, truth: str) -> None:
    platform = parse_platform({"schema": "1", "platform.json": json.dumps(platform_json())})
    place = Ebb(kube=cast(Kube, FakeKube(*jobs)), platform=platform, namespace=NS)
    files = Volume(town.files())
    seen = await show(place, "scan", open_files=files.open)
    report = await make(place, "scan", open_files=files.open)
    assert isinstance(report, SweepReport)
    assert {seen.best, report.best} == {truth}
    assert all(each.step == each.total_steps for each in seen.runs if each.state == "finished")
