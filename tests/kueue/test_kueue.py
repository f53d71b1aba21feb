"""Promises to a job in a queue of Kueue's, checked with Kueue itself."""

import time

from ebb.api import contract as names
from ebb.controller.reconciler.workload import is_true
from ebb.kube import WORKLOADS
from tests.kueue.conftest import Cluster


async def test_it_has_no_pods_until_kueue_admits_it_and_then_runs_on_the_flavors_machines(cluster: Cluster) -> None:
    team = await cluster.team()
    job = await team.submit("digits", replicas=2, low=2, high=2)
    await job.until("it waits for Kueue", lambda: job.condition("Running").get("reason") == names.WAITING_FOR_KUEUE)
    workload = await job.told("it is told of", bool)
    assert (workload["spec"]["queueName"], workload["spec"]["podSets"][0]["count"]) == ("gpus", 2)
    assert not job.pods
    began = time.monotonic()
    await team.queue(4)
    await job.trains(2)
    cluster.figures["queue made to all workers run, s"] = round(time.monotonic() - began, 1)
    assert all(pod["spec"]["nodeSelector"][names.LABEL_CAPACITY] == "spot" for pod in job.pods.values())
    assert (await job.is_told("PodsReady"))["reason"] == "Started"
    await team.until_reserved(2)
    await job.finishes()
    await job.until("it succeeded", lambda: job.state == "Succeeded", 30)
    assert (await job.is_told("Finished"))["reason"] == "Succeeded"
    await team.until_reserved(0)


async def test_it_is_content_with_part_of_what_it_asks_for(cluster: Cluster) -> None:
    team = await cluster.team()
    await team.queue(3)
    job = await team.submit("digits", replicas=6, low=2, high=6)
    await job.trains(3)
    words = "3 of 3 workers run. Kueue lets it have 3 of 6."
    await job.until("it says so", lambda: job.condition("Running")["message"] == words)
    await job.delete()
    await team.until_reserved(0)


async def test_what_it_scales_down_by_goes_to_the_next_one(cluster: Cluster) -> None:
    team = await cluster.team()
    await team.queue(4)
    job = await team.submit("digits", replicas=4, low=1, high=4)
    await job.trains(4)
    other = await team.submit("letters", replicas=2, low=2, high=2)
    await job.scale(2)
    await other.trains(2)
    await job.trains(2)
    await job.scale(4)  # what is given back is gone, until it is suspended and resumed
    await job.until("it says so", lambda: "Kueue lets it have 2 of 4." in job.condition("Running")["message"])
    assert len(job.pods) == 2


async def test_one_of_higher_priority_has_it_stop_and_it_comes_back(cluster: Cluster) -> None:
    team = await cluster.team()
    await team.queue(2)
    low = await team.submit("low", replicas=2, low=2, high=2, urgency="low")
    await low.trains(2)
    began = time.monotonic()
    high = await team.submit("high", replicas=2, low=2, high=2, urgency="high")
    await high.trains(2)
    cluster.figures["submitted to all workers run, by preemption, s"] = round(time.monotonic() - began, 1)
    assert names.REASON_EVICTED in low.reasons
    assert not low.pods
    assert (low.status.get("failures", 0), low.status.get("reclaims", 0)) == (0, 0), "nobody's fault"
    await high.finishes()
    await low.trains(2)
    assert not is_true(await low.look(), "Evicted")


async def test_a_team_that_borrowed_gives_back_what_the_owner_wants(cluster: Cluster) -> None:
    owner, borrower = await cluster.team(), await cluster.team()
    await owner.queue(2, cohort="lab")
    await borrower.queue(1, cohort="lab", borrow=2)
    job = await borrower.submit("digits", replicas=3, low=3, high=3)
    await job.trains(3)
    own = await owner.submit("letters", replicas=2, low=2, high=2)
    await own.trains(2)
    await job.trains(0)
    assert "InCohortReclamation" not in str(job.status.get("conditions")), "people read Kueue's sentence, not its reason alone"
    assert "Kueue" in job.condition("Running")["message"]


async def test_a_job_that_is_stopped_holds_no_quota_and_queues_again(cluster: Cluster) -> None:
    team = await cluster.team()
    await team.queue(2)
    job = await team.submit("digits", replicas=2, low=2, high=2)
    await job.trains(2)
    other = await team.submit("letters", replicas=2, low=2, high=2)
    await job.patch(suspend=True)
    await other.trains(2)
    assert await job.look() == {}
    await job.patch(suspend=False)
    await job.told("it queues again", bool)
    await other.finishes()
    await job.trains(2)


async def test_one_that_is_deactivated_stays_stopped_and_says_how_to_go_on(cluster: Cluster) -> None:
    team = await cluster.team()
    await team.queue(2)
    job = await team.submit("digits", replicas=2, low=2, high=2)
    await job.trains(2)
    name = (await job.look())["metadata"]["name"]
    await cluster.made.kube.patch(WORKLOADS, team.name, name, {"spec": {"active": False}})
    await job.trains(0)
    await team.until_reserved(0)
    await job.until("it says so", lambda: "`ebb resume`" in job.condition("Running")["message"])
    await cluster.made.kube.patch(WORKLOADS, team.name, name, {"spec": {"active": True}})
    await job.trains(2)
