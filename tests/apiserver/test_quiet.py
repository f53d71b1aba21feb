"""What the controller asks of the API server: nothing when nothing changes, little when a training moves.

Counted by the proxy through which all of it goes; the Lease is the one thing that is renewed.
"""

import asyncio
import itertools
import time

from ebb.api import contract as names
from tests.apiserver.conftest import SETTINGS
from tests.apiserver.controller import Process
from tests.apiserver.place import Place
from tests.apiserver.proxy import Asked, Line
from tests.apiserver.training import training

QUIET_SECONDS = 4.0  # more than all pauses of SETTINGS
PROGRESS_SECONDS = SETTINGS["ebb.controller.reconciler.reconcile.PROGRESS_SECONDS"]  # 30 s, as it ships


async def settled(place: Place, line: Line, seconds: float = 1.5) -> None:
    """Nothing was written for a while."""
    await place.made.seen.until("it settles", lambda: not line.writes(time.monotonic() - seconds), 60)


def statuses(asked: list[Asked], name: str) -> list[Asked]:
    return [one for one in asked if one.path.endswith(f"/elasticjobs/{name}/status")]


async def test_when_nothing_changes_nothing_is_written_but_the_lease(place: Place, line: Line) -> None:
    """Of jobs in every state at once: running, waiting, suspended, succeeded, failed, somebody else's."""
    jobs = {
        "running": await place.submit("running", replicas=2),
        "suspended": await place.submit("suspended", replicas=2, suspend=True),
        "succeeded": await place.submit("succeeded", replicas=1),
        "failed": await place.submit("failed", replicas=1, policy="Never"),
        "foreign": await place.submit("foreign", replicas=1, managedBy="kueue.x-k8s.io/multikueue"),
    }
    for name, count in (("running", 2), ("succeeded", 1), ("failed", 1)):
        await jobs[name].runs(count)
    await jobs["succeeded"].ends(0, code=0)
    await jobs["failed"].ends(0, code=1)
    place.machines.boots = False
    jobs["waiting"] = await place.submit("waiting", replicas=2)
    await jobs["succeeded"].until("it succeeded", lambda: jobs["succeeded"].state == names.SUCCEEDED)
    await settled(place, line)
    began, renewals = time.monotonic(), len(line.writes(leases=True))
    await asyncio.sleep(QUIET_SECONDS)
    assert [str(one) for one in line.writes(began)] == []
    assert len(line.writes(leases=True)) > renewals, "the proxy does not see what is written"


async def test_heartbeats_of_machines_cause_no_write(place: Place, line: Line) -> None:
    job = await place.submit(replicas=2)
    await job.runs(2)
    await settled(place, line)
    began = time.monotonic()
    for _ in range(5):
        for machine in list(place.machines.all.values()):
            await place.machines.condition(machine, "Ready", "True", "KubeletReady", "kubelet is posting ready status")
        await asyncio.sleep(0.2)
    await asyncio.sleep(0.5)
    assert [str(one) for one in line.writes(began)] == []


async def test_a_restarted_controller_writes_nothing_about_jobs_that_are_as_they_were(
    place: Place, line: Line, controller: Process
) -> None:
    job = await place.submit(replicas=2)
    await job.runs(2)
    await settled(place, line)
    await controller.stop()
    began = time.monotonic()
    await controller.start()
    await place.made.seen.until("it reads pods", lambda: any(one.watch and one.at > began for one in line.asked))
    await asyncio.sleep(2)
    assert [str(one) for one in line.writes(began)] == []


async def test_a_training_that_moves_costs_at_most_one_status_in_the_time_that_is_set_for_it(place: Place, line: Line) -> None:
    job = await place.submit(replicas=1)
    await job.runs(1)
    async with training(job.pods[0]["status"]["podIP"]) as worker:
        await job.until("its progress is told", lambda: "progress" in job.status)
        began, step, asked = time.monotonic(), worker.step, worker.asked
        seconds = 2 * PROGRESS_SECONDS + 1
        await place.made.seen.until("it moved for long", lambda: time.monotonic() > began + seconds, seconds + 5)
        assert worker.step > step + 20, "nothing moved"
        assert worker.asked > asked + 3, "nobody looked"
    written = [one.at - began for one in statuses(line.writes(began), "digits")]
    assert 1 <= len(written) <= 3, written
    assert all(later - earlier > PROGRESS_SECONDS - 1 for earlier, later in itertools.pairwise(written)), written


async def test_a_recovery_costs_few_calls(place: Place, line: Line) -> None:
    """One worker of four: its pod is forced out, made anew and counted; each step of it is one write."""
    job = await place.submit(replicas=4, high=4)
    await job.runs(4)
    await settled(place, line)
    began, old = time.monotonic(), job.pod_uid(2)
    await place.machines.vanish(job.machine(2))
    await job.is_replaced(2, old)
    await job.runs(4)
    await settled(place, line)
    written = [one for one in line.writes(began) if not one.path.endswith("/events")]
    assert len(written) <= 8, [str(one) for one in written]
