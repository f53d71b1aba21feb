"""Machines of which nothing is heard, by their Leases: noticed long before Kubernetes does, and never believed too easily."""

import time

from ebb.api import contract as names
from ebb.controller.reconciler.worker_state import CONFIRM_SECONDS
from tests.apiserver.conftest import SETTINGS
from tests.apiserver.kubelets import HEARTBEAT_SECONDS
from tests.apiserver.place import Job, Place

LIMIT_SECONDS = SETTINGS["ebb.controller.node_heartbeats.LEAST_SECONDS"]


async def training(place: Place, replicas: int) -> Job:
    """Their program has no metrics: what the worker of a silent machine gets first is its own grace."""
    pod = {"terminationGracePeriodSeconds": 1}
    job = await place.submit(replicas=replicas, low=1, high=replicas, backoffLimit=0, pod=pod)
    await job.runs(replicas)
    return job


async def test_a_machine_that_does_not_renew_its_lease_is_lost_and_its_pod_forced_out(place: Place) -> None:
    job = await training(place, 6)
    old, began = job.pod_uid(1), time.monotonic()
    place.machines.lose(job.machine(1))
    await job.is_replaced(1, old, LIMIT_SECONDS * 6)
    assert time.monotonic() - began < LIMIT_SECONDS + HEARTBEAT_SECONDS + 1 + CONFIRM_SECONDS + 4
    entry = next(one for one in job.status["history"] if one["what"] == "reclaimed")
    assert (entry["worker"], entry["cause"]) == (1, names.CAUSE_NODE_SILENT)
    assert (job.status["failures"], job.status["reclaims"]) == (0, 1)


async def test_while_more_than_a_third_of_the_machines_look_silent_nothing_is_deleted(place: Place) -> None:
    """It says more about the controller's view than about them."""
    job = await training(place, 4)
    before = [job.pod_uid(index) for index in range(4)]
    lost = [job.machine(index) for index in (0, 1)]
    for machine in lost:
        machine.beats = False
    began = time.monotonic()
    enough = LIMIT_SECONDS + HEARTBEAT_SECONDS + 1  # in which one of six is given up, as the test above shows
    await job.until("they are silent for long", lambda: time.monotonic() > began + enough, 3 * LIMIT_SECONDS)
    assert [job.pod_uid(index) for index in range(4)] == before
    for machine in lost:
        machine.beats = True
    await job.looked()
    assert [job.pod_uid(index) for index in range(4)] == before
    assert job.status["reclaims"] == 0


async def test_a_machine_that_is_heard_of_again_in_time_keeps_its_worker(place: Place) -> None:
    job = await training(place, 6)
    old, machine = job.pod_uid(1), job.machine(1)
    machine.beats, began = False, time.monotonic()
    await job.until("it is late", lambda: time.monotonic() > began + LIMIT_SECONDS - HEARTBEAT_SECONDS - 0.5)
    machine.beats = True
    await job.until("it had time to be missed", lambda: time.monotonic() > began + LIMIT_SECONDS + HEARTBEAT_SECONDS)
    assert job.pod_uid(1) == old
    assert job.status["reclaims"] == 0
