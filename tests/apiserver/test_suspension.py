"""How a job pauses, by its author or by a queue such as Kueue: machines given back, nothing spent, and on as before."""

from ebb.api import contract as names
from tests.apiserver.place import Place
from tests.apiserver.test_life import done


async def test_suspending_stops_all_workers_within_their_grace_and_spends_nothing(place: Place) -> None:
    place.machines.exit_code = 1  # as torchrun's own answer to SIGTERM
    job = await place.submit(replicas=2, backoffLimit=0, pod={"terminationGracePeriodSeconds": 25})
    await job.runs(2)
    uids = {job.pod_uid(0), job.pod_uid(1)}
    await job.patch(suspend=True)
    await job.until("it is suspended", lambda: job.state == names.SUSPENDED and not job.pods)
    assert {grace for uid, (_, grace) in place.machines.told.items() if uid in uids} == {25}
    await job.looked()
    assert (job.status["failures"], job.status["reclaims"], job.status["ready"]) == (0, 0, "0/2")
    assert job.is_true(names.SUSPENDED)
    assert not job.is_true(names.RUNNING)
    assert "startTime" not in job.status


async def test_a_job_that_is_submitted_suspended_gets_no_pods(place: Place) -> None:
    job = await place.submit(replicas=2, suspend=True)
    await job.until("it is suspended", lambda: job.state == names.SUSPENDED)
    await job.looked()
    assert not job.pods
    await job.patch(suspend=False)
    await job.runs(2)


async def test_resuming_goes_on_with_the_same_identity(place: Place) -> None:
    job = await place.submit(replicas=2)
    await job.runs(2)
    arguments = job.pods[0]["spec"]["containers"][0]["args"]
    await job.patch(suspend=True)
    await job.until("it is suspended", lambda: job.state == names.SUSPENDED and not job.pods)
    await job.patch(suspend=False)
    await job.runs(2)
    assert job.pods[0]["spec"]["containers"][0]["args"] == arguments
    assert job.condition(names.SUSPENDED)["status"] == "False"
    await job.until("people are told", lambda: names.REASON_RESUMED in job.reasons)


async def test_bounds_selectors_and_tolerations_may_change_while_suspended_and_hold_on_resume(place: Place) -> None:
    """As Kueue does when it admits a job to a flavour."""
    job = await place.submit(replicas=2, suspend=True)
    await job.until("it is suspended", lambda: job.state == names.SUSPENDED)
    toleration = {"key": "flavour", "operator": "Exists", "effect": "NoSchedule"}
    spec = {"nodeSelector": {"flavour": "spot"}, "tolerations": [toleration]}
    await job.patch(maxReplicas=8, replicaSpecs={"Worker": {"template": {"spec": spec}}})
    await job.patch(suspend=False)
    await job.runs(2)
    pod = job.pods[0]["spec"]
    assert pod["nodeSelector"]["flavour"] == "spot"
    assert toleration in pod["tolerations"]
    assert "--nnodes=1:8" in pod["containers"][0]["args"]


async def test_a_suspended_job_that_is_ended_stays_ended(place: Place) -> None:
    job = await done(place)
    await job.patch(suspend=True)
    await job.looked()
    assert job.state == names.SUCCEEDED
