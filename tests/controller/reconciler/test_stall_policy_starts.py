"""Jobs whose containers cannot start on machines that are paid for: which are noticed and when, and what is done about them."""

from typing import Any

import pytest

from ebb.api.clock import stamp
from tests.builders import NOW, make_job, make_pod
from tests.controller.reconciler.stories import Story, stalled
from tests.looks import done, running

Object = dict[str, Any]

JOB = make_job(replicas=2, low=2)


def stuck(
    index: int = 0,
    error: str = "",
    *,
    said: str = "no such image",
    placed: float | None = None,
    init: Object | None = None,
    attempt: int = 0,
    job: Object = JOB,
) -> Object:
    """A worker on a machine whose training container has not started. `init`: the state of its init container."""
    pod = make_pod(job, index, phase="Pending", attempt=attempt)
    waiting = {"reason": error, "message": said} if error else {"reason": "PodInitializing" if init else "ContainerCreating"}
    pod["status"]["containerStatuses"] = [{"name": "elasticjob-worker", "state": {"waiting": waiting}}]
    if init:
        pod["status"]["initContainerStatuses"] = [{"name": "download", "state": init}]
    if placed is not None:
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(placed)}]
    return pod


ERRORS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)


@pytest.mark.parametrize("error", ERRORS)
def test_containers_that_cannot_start_are_given_five_minutes(error: str) -> None:
    story, pods = Story(JOB), (stuck(0, error), stuck(1, error))
    first, before, over = (story.look(at, *pods) for at in (0, 299, 300))
    assert (first.wake_at, stalled(first), stalled(before)) == (NOW + 300, None, None)
    assert stalled(over) == ("True", "CannotStart")


def creating(at: float, *pods: Object, job: Object = JOB) -> tuple[str, str] | None:
    """Whether the job is stalled at that second, looked at from the start."""
    story = Story(job)
    story.look(0, *pods)
    return stalled(story.look(at, *pods))


CANNOT_START: dict[str, tuple[tuple[str, str] | None, bool]] = {
    "an-init-container-cannot": (
        creating(300, stuck(init={"waiting": {"reason": "ImagePullBackOff"}}), stuck(1)),
        True,
    ),
    "one-of-two-that-are-needed": (creating(300, stuck(0, "ErrImagePull"), make_pod(JOB, 1)), True),
    "one-that-is-not-needed": (
        creating(300, stuck(0, "ErrImagePull"), make_pod(JOB, 1), job=make_job(replicas=2, low=1)),
        False,
    ),
    "one-that-is-being-created-and-not-needed": (
        creating(600, stuck(placed=NOW), make_pod(JOB, 1), job=make_job(replicas=2, low=1)),
        False,
    ),
    "one-that-is-too-many": (
        creating(300, *running(JOB, 1), stuck(2, "ErrImagePull"), job=make_job(replicas=2, low=2, high=3)),
        False,
    ),
    "a-large-image": (creating(599, stuck(placed=NOW), stuck(1, placed=NOW)), False),
    "created-for-ten-minutes": (creating(600, stuck(placed=NOW), stuck(1, placed=NOW)), True),
    "placed-long-after-the-job-began": (creating(600, stuck(placed=NOW + 300), stuck(1, placed=NOW + 300)), False),
    "an-init-container-that-takes-its-time": (
        creating(6000, stuck(placed=NOW, init={"running": {}}), stuck(1, placed=NOW, init={"running": {}})),
        False,
    ),
    "an-image-that-comes-after-a-long-init-container": (
        creating(6000, stuck(placed=NOW, init={"terminated": {"exitCode": 0}}), stuck(1, placed=NOW, init={"running": {}})),
        False,
    ),
    "no-machine-yet": (creating(6000, make_pod(JOB, phase="Pending", node="")), False),
    "suspended": (creating(6000, stuck(0, "ErrImagePull"), job=make_job(suspend=True)), False),
}


@pytest.mark.parametrize(("found", "expected"), CANNOT_START.values(), ids=CANNOT_START.keys())
def test_which_jobs_cannot_start(found: tuple[str, str] | None, expected: bool) -> None:
    assert found == (("True", "CannotStart") if expected else None)


def test_all_workers_are_started_again_once_and_nothing_is_counted() -> None:
    story, pods = Story(JOB), (stuck(0, "ErrImagePull"), stuck(1, "ErrImagePull"))
    story.look(0, *pods)
    over, acted = story.look(300, *pods), story.look(300, *pods)
    gone = story.look(301)
    status = gone.status
    assert [done(decided) for decided in (over, acted, gone)] == [[], ["-0", "-1"], ["+0", "+1"]], "written first, then done"
    assert (status.restarts, status.failures, status.reclaims) == (1, 0, 0)
    assert [(entry.what, entry.cause) for entry in status.history] == [
        ("stalled", "digits-worker-0 cannot start for 5 minutes: ErrImagePull: no such image.")
    ]
    assert [(event.reason, event.message) for event in over.events if event.warning] == [
        (
            "CannotStart",
            "digits-worker-0 cannot start for 5 minutes: ErrImagePull: no such image. All workers are started again, once.",
        )
    ]


def after_a_restart(error: str) -> Story:
    """A job whose workers were started again at 300 s."""
    story = Story(JOB)
    story.look(0, stuck(0, error), stuck(1, error))
    story.look(300, stuck(0, error), stuck(1, error))
    story.look(301)
    return story


def test_the_second_time_the_job_is_held_and_its_machines_released() -> None:
    story = after_a_restart("ErrImagePull")
    pods = (stuck(0, "ErrImagePull", attempt=1), stuck(1, "ErrImagePull", attempt=1))
    assert story.look(310, *pods).status.hold is None
    over, acted, rests = story.look(610, *pods), story.look(610, *pods), story.look(9999)
    assert over.status.hold is not None
    assert (over.status.hold.reason, over.status.hold.message) == (
        "CannotStart",
        "digits-worker-0 cannot start for 5 minutes: ErrImagePull: no such image. Starting all workers again did not help: the "
        "job is stopped. Correct the job and apply it again; any change of its spec makes it try once more.",
    )
    assert (done(over), done(acted), done(rests)) == ([], ["-0", "-1"], [])
    assert (rests.status.state, stalled(rests), rests.status.failures) == ("Suspended", ("True", "CannotStart"), 0)


def test_a_restart_that_helped_is_forgotten() -> None:
    story = after_a_restart("ErrImagePull")
    up = story.look(400, *running(JOB, 2, attempt=1))
    assert stalled(up) == ("False", "ElasticJobRunning")
    assert up.status.stall is not None
    assert (up.status.stall.restarts, up.status.stall.broken_at) == (0, None)


def test_a_job_that_was_held_begins_anew_when_its_spec_changes() -> None:
    story = after_a_restart("ErrImagePull")
    pods = (stuck(0, "ErrImagePull", attempt=1), stuck(1, "ErrImagePull", attempt=1))
    for at in (310, 610, 610):
        story.look(at, *pods)
    story.job = {**story.job, "metadata": {**story.job["metadata"], "generation": 2}}
    resumed = story.look(700)
    assert (done(resumed), stalled(resumed), resumed.status.stall) == (["+0", "+1"], ("False", "ElasticJobResumed"), None)


def test_a_replacement_that_cannot_start_either_has_no_five_minutes_of_its_own() -> None:
    story = Story(JOB)
    story.look(0, stuck(0, "ErrImagePull"), make_pod(JOB, 1))
    story.look(200, stuck(0), make_pod(JOB, 1))  # another machine; its kubelet has not tried yet
    assert stalled(story.look(301, stuck(0, "ErrImagePull"), make_pod(JOB, 1))) == ("True", "CannotStart")


def test_one_that_starts_meanwhile_shows_that_others_can() -> None:
    story = Story(make_job(replicas=3, low=3))
    story.look(0, stuck(0, "ErrImagePull"), stuck(1), stuck(2))
    story.look(200, make_pod(JOB), stuck(1), stuck(2, placed=NOW + 200))
    refused = [make_pod(JOB), stuck(1, "ErrImagePull", placed=NOW + 200), stuck(2, placed=NOW + 200)]
    assert [stalled(story.look(at, *refused)) for at in (301, 600)] == [None, None]
    assert stalled(story.look(601, *refused)) == ("True", "CannotStart")


def test_time_in_which_enough_others_ran_does_not_count() -> None:
    story, broken = Story(make_job(replicas=3, low=2)), stuck(0, "ErrImagePull")
    story.look(0, broken, make_pod(JOB, 1))
    story.look(100, broken, make_pod(JOB, 1), make_pod(JOB, 2))
    assert stalled(story.look(350, broken, make_pod(JOB, 1))) is None
    assert stalled(story.look(650, broken, make_pod(JOB, 1))) == ("True", "CannotStart")


def test_workers_that_are_still_to_be_stopped_are_not_judged_again() -> None:
    story, pods = Story(JOB), (stuck(placed=NOW), stuck(1, placed=NOW))
    story.look(0, *pods)
    over, acted = story.look(600, *pods), story.look(601, *pods)
    assert (over.status.restarts, acted.status.restarts, acted.status.hold, done(acted)) == (1, 1, None, ["-0", "-1"])


def test_a_container_that_is_being_created_says_where_to_look() -> None:
    story, pods = Story(JOB), (stuck(placed=NOW), stuck(1, placed=NOW))
    story.look(0, *pods)
    condition = story.look(600, *pods).status.condition("Stalled")
    assert condition is not None
    assert condition.message == (
        "digits-worker-0 was placed on n0 10 minutes ago and its containers are still being created: its image or a volume does "
        "not come; `kubectl describe pod digits-worker-0` says which. All workers are started again, once."
    )


def test_machines_that_go_meanwhile_do_not_start_the_clock_anew() -> None:
    story, pods = Story(JOB), (stuck(0, "ErrImagePull"), stuck(1, "ErrImagePull"))
    story.look(0, *pods)
    assert stalled(story.look(200)) is None, "both workers are lost with their machines"
    story.look(240, *pods)
    assert stalled(story.look(300, *pods)) == ("True", "CannotStart")
