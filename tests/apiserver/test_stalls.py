"""Jobs that pay for machines and train nothing: started again once, then stopped; and how far a training is."""

from typing import Any

from ebb.api import contract as names
from tests.apiserver.place import Job, Place
from tests.apiserver.test_money import held
from tests.apiserver.test_placement import waits_for
from tests.apiserver.training import training

PULL = "Back-off pulling image example.org/trainer:typo: not found"


async def placed(place: Place, **changes: Any) -> Job:
    """A job whose worker has a machine, and does not start."""
    place.machines.starts = False
    job = await place.submit(replicas=1, low=1, **changes)
    await job.until("it has a machine", lambda: 0 in job.pods and "nodeName" in job.pods[0]["spec"])
    return job


async def stuck(job: Job, reason: str = "ImagePullBackOff", message: str = PULL) -> str:
    """Its container cannot start; the pod's UID."""
    await job.until("it has a machine", lambda: 0 in job.pods and "nodeName" in job.pods[0]["spec"])
    await job.machines.stuck(job.worker(0), reason, message)
    return job.pod_uid(0)


def attempt(job: Job) -> str:
    """Of worker 0."""
    return str(job.pods[0]["metadata"]["annotations"][names.ANNOTATION_ATTEMPT]) if 0 in job.pods else ""


# --- Containers that cannot start -----------------------------------------------------------------------------------------------


async def test_a_container_that_cannot_start_is_told_in_the_kubelets_words(place: Place) -> None:
    job = await placed(place)
    await stuck(job, "CreateContainerConfigError", "secret wandb not found")
    await waits_for(job, names.WAITING_FOR_START, "digits-worker-0: CreateContainerConfigError: secret wandb not found")


async def test_pods_that_cannot_start_are_made_anew_once_and_then_the_job_is_stopped(place: Place) -> None:
    job = await placed(place)
    first = await stuck(job)
    await job.until("it is stalled", lambda: job.is_true(names.STALLED))
    assert job.condition(names.STALLED)["reason"] == names.REASON_CANNOT_START
    assert PULL in job.condition(names.STALLED)["message"]
    await job.until("it is made anew", lambda: job.pod_uid(0) not in ("", first))
    assert (job.status["restarts"], job.status["failures"]) == (1, 0)
    await stuck(job)
    message = await held(job, names.REASON_CANNOT_START)
    assert PULL in message
    assert (job.status["failures"], job.status["reclaims"]) == (0, 0)


async def test_any_change_of_a_stopped_job_lets_it_try_again(place: Place) -> None:
    job = await placed(place)
    await stuck(job)
    await job.until("it is made anew", lambda: attempt(job) == "1")
    await stuck(job)
    await held(job, names.REASON_CANNOT_START)
    place.machines.starts = True
    container = {"name": names.WORKER_CONTAINER, "image": "example.org/trainer:2"}
    await job.patch(replicaSpecs={"Worker": {"template": {"spec": {"containers": [container]}}}})
    await job.runs(1)
    assert not job.is_true(names.STALLED)


async def test_one_worker_that_cannot_start_while_enough_train_stops_nothing(place: Place) -> None:
    job = await place.submit(replicas=1, low=1)
    await job.runs(1)
    place.machines.starts = False
    await job.scale(2)
    await job.until("it has a machine", lambda: 1 in job.pods and "nodeName" in job.pods[1]["spec"])
    await place.machines.stuck(job.worker(1), "ImagePullBackOff", PULL)
    await job.looked()
    assert job.state == names.RUNNING
    assert not job.is_true(names.STALLED)


# --- Progress -------------------------------------------------------------------------------------------------------------------


async def test_progress_is_read_from_the_workers(place: Place) -> None:
    job = await place.submit(replicas=1)
    await job.runs(1)
    async with training(job.pods[0]["status"]["podIP"], first=500) as worker:
        await job.until("it is told", lambda: "progress" in job.status)
        assert worker.asked
    progress = job.status["progress"]
    assert progress["step"] >= 500
    told = {key: progress[key] for key in ("totalSteps", "epoch", "loss", "worldSize", "generation", "samplesPerSecond")}
    assert told == {"totalSteps": 100000, "epoch": 1, "loss": 0.5, "worldSize": 1, "generation": 1, "samplesPerSecond": 100}


async def test_a_worker_that_does_not_answer_costs_nothing(place: Place) -> None:
    job = await place.submit(replicas=1)
    await job.runs(1)
    await job.looked()
    assert "progress" not in job.status
    assert job.state == names.RUNNING


async def test_a_job_without_a_new_step_is_started_again_once_and_then_stopped(place: Place) -> None:
    job = await place.submit(replicas=1, low=1, progress={"stallTimeoutSeconds": 3})
    await job.runs(1)
    first = job.pod_uid(0)
    async with training(job.pods[0]["status"]["podIP"], first=7, moves=False):
        await job.until("it is stalled", lambda: job.is_true(names.STALLED), 30)
        assert job.condition(names.STALLED)["reason"] == names.REASON_NO_PROGRESS
        assert "step 7" in job.condition(names.STALLED)["message"]
        await job.is_replaced(0, first)
    async with training(job.pods[0]["status"]["podIP"], first=7, moves=False):
        await held(job, names.REASON_NO_PROGRESS, 30)
    assert job.status["failures"] == 0


async def test_a_new_step_after_the_restart_means_that_it_is_well(place: Place) -> None:
    job = await place.submit(replicas=1, low=1, progress={"stallTimeoutSeconds": 3})
    await job.runs(1)
    first = job.pod_uid(0)
    async with training(job.pods[0]["status"]["podIP"], first=7, moves=False):
        await job.until("it is stalled", lambda: job.is_true(names.STALLED), 30)
        await job.is_replaced(0, first)
    async with training(job.pods[0]["status"]["podIP"], first=8):
        await job.until("it is well", lambda: job.condition(names.STALLED).get("status") == "False", 20)
    assert job.condition(names.STALLED)["reason"] == names.REASON_PROGRESSES


async def test_five_generations_without_a_new_step_are_a_stall(place: Place) -> None:
    job = await place.submit(replicas=1, low=1)
    await job.runs(1)
    async with training(job.pods[0]["status"]["podIP"], first=7, moves=False) as worker:
        await job.until("its progress is known", lambda: "progress" in job.status)
        worker.generation = 6
        await job.until("it is stalled", lambda: job.is_true(names.STALLED), 20)
    assert "generations made no step after step 7" in job.condition(names.STALLED)["message"]
