"""A job that the controller holds: written first, stopped next, nothing counted, until its spec changes."""

from typing import Any

from ebb.api.clock import stamp
from ebb.controller.reconciler.types import Plan
from ebb.kube import PODS
from tests.builders import NOW, make_job, make_pod
from tests.fake_time import run
from tests.looks import again, done, ended, look, running
from tests.world import started

Object = dict[str, Any]


def edited(job: Object, **spec: Any) -> Object:
    return {
        **job,
        "metadata": {**job["metadata"], "generation": job["metadata"]["generation"] + 1},
        "spec": {**job["spec"], **spec},
    }


def test_a_hold_is_written_first_and_acted_upon_next() -> None:
    job, pods = make_job(deadline=stamp(NOW + 5)), running(make_job(), 2)
    up = look(job, *pods)
    first = look(again(job, up), *pods, now=NOW + 5)
    second = look(again(job, first), *pods, now=NOW + 5)
    assert [done(decided) for decided in (up, first, second)] == [[], [], ["-0", "-1"]]
    assert [entry.what for entry in first.status.history] == ["held"]
    assert [(event.reason, event.warning) for event in second.events] == [("DeadlinePassed", True)]
    condition, ran = second.status.condition("Suspended"), second.status.condition("Running")
    assert condition is not None
    assert ran is not None
    assert (second.status.state, condition.status, condition.reason) == ("Suspended", "True", "DeadlinePassed")
    assert (ran.status, ran.reason) == ("False", "DeadlinePassed")
    assert (second.status.start_time, second.status.reclaims, second.status.failures) == (None, 0, 0)


def held(*pods: Object) -> tuple[Object, Plan]:
    """A job over its deadline, and the look that stopped it."""
    job = make_job(deadline=stamp(NOW))
    job = again(job, look(job, *pods, now=NOW - 1))
    job = again(job, look(job, *pods))
    decided = look(job, *pods)
    return again(job, decided), decided


def test_a_held_job_rests() -> None:
    job, stopped = held(make_pod(make_job(), deleted=NOW))
    gone = look(job, now=NOW + 30)
    later = look(again(job, gone), now=NOW + 9999)
    assert (later.status, later.actions, later.events, later.wake_at) == (gone.status, (), (), None)
    assert stopped.status.placement is not None
    assert later.status.placement is None


def test_how_workers_of_a_held_job_end_is_not_counted() -> None:
    job, _ = held(*running(make_job(), 2))
    killed = make_pod(make_job(), 1, phase="Failed", exit_code=137)
    later = look(job, ended(1), killed)
    assert (later.status.reclaims, later.status.failures, later.status.state) == (0, 0, "Suspended")
    resumed = look(edited(job, deadline=None), make_pod(make_job(), deleted=NOW), killed)
    assert (resumed.status.reclaims, resumed.status.failures, resumed.status.state) == (0, 0, "Waiting")


def test_any_change_of_the_spec_lets_it_try_again() -> None:
    job, _ = held()
    gone_on = look(edited(job, deadline=stamp(NOW + 500)))
    assert (gone_on.status.hold, done(gone_on), gone_on.status.is_true("Suspended")) == (None, ["+0", "+1"], False)
    assert "ElasticJobResumed" in [event.reason for event in gone_on.events]


def test_a_change_that_does_not_help_creates_nothing() -> None:
    job = edited(held()[0], backoffLimit=9)
    first = look(job)
    second = look(again(job, first))
    assert first.status.hold is not None
    assert (first.status.hold.generation, done(first), first.status.is_true("Suspended")) == (2, [], True)
    assert (done(second), second.status.state) == ([], "Suspended")


def test_suspended_by_its_author_wins_over_a_hold() -> None:
    job = edited(held()[0], suspend=True)
    decided = look(job)
    condition = decided.status.condition("Suspended")
    assert condition is not None
    assert (decided.status.hold, condition.reason) == (None, "ElasticJobSuspended")


def test_the_controller_stops_a_job_at_its_deadline_and_starts_it_again_when_that_is_moved() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(deadline=stamp(NOW + 100)))
            await world.settle(97)
            assert world.state() == "Running"
            await world.settle(3)
            assert world.state() == "Suspended"
            assert all("deletionTimestamp" in pod["metadata"] for pod in world.api.all(PODS))
            for name in world.pods():
                world.api.pod_ends(name, 1)
            await world.settle(3600)
            assert (world.pods(), world.state(), world.status()["failures"]) == ([], "Suspended", 0)
            world.edit_spec(deadline=stamp(NOW + 9999))
            await world.settle()
            assert (len(world.pods()), world.state()) == (2, "Waiting")

    run(story())
