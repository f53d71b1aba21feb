"""The controller as a process: what it tells of itself, and how two of them share the work."""

import asyncio
import json
from functools import partial
from operator import lt

from ebb.kube import LEASES
from tests.apiserver.controller import Process
from tests.apiserver.faults import LEASE
from tests.apiserver.place import Place
from tests.apiserver.plane import JOBS, SYSTEM, Made
from tests.apiserver.proxy import Line


async def test_metrics_tell_of_reclaims_recoveries_and_the_state_of_the_loop(place: Place, controller: Process) -> None:
    job = await place.submit(replicas=1, low=1)
    await job.runs(1)
    old, before = job.pod_uid(0), await controller.metrics()
    await place.machines.vanish(job.machine(0))
    await job.is_replaced(0, old)
    await job.runs(1)
    for name in (
        "ebb_reclaims_total",
        "ebb_recovery_seconds_count",
        "ebb_replacement_seconds_count",
        "ebb_reconcile_seconds_count",
    ):
        await controller.until_metric(name, partial(lt, before.get(name, 0)))
    assert 'ebb_reclaims_total{cause="NodeGone"}' in await controller.page("metrics")
    assert {"ebb_queue_depth", "ebb_watch_age_seconds", "ebb_leads"} <= (await controller.metrics()).keys()


async def test_it_says_that_it_is_well_and_ready(place: Place, controller: Process) -> None:
    assert (await controller.page("healthz"), await controller.page("readyz")) == ("ok\n", "ok\n")


async def test_it_says_that_it_is_sick_when_a_watch_is_silent(place: Place, controller: Process, made: Made, line: Line) -> None:
    """As when the network loses a connection and tells nobody. A watch that is only quiet ends in order, and is begun anew."""
    lasts = {"ebb.kube.reflector.SERVER_SECONDS": 2, "ebb.kube.reflector.LASTING_SECONDS": 0.5}
    trusts = {"ebb.kube.reflector.LATE_SECONDS": 60, "ebb.controller.metrics.SILENT_SECONDS": 4}
    settings = {**controller.settings, **lasts, **trusts}
    other = Process(controller.log.parent, "ebb-controller-2", line.url, await made.token(), settings)
    await controller.stop()
    await other.start()
    try:
        await made.seen.until("a watch of pods is open, and says nothing any more", lambda: line.deafen("/pods"))
        assert await other.page("healthz") == "ok\n"
        async with asyncio.timeout(15):
            while (said := await other.page("healthz")) == "ok\n":  # noqa: ASYNC110 - nobody tells when it would change
                await asyncio.sleep(0.1)
        assert "nothing heard from the API server" in said
        assert ('kind="pods"' in said, 'kind="nodes"' in said) == (True, False)
    finally:
        await other.stop()
    await controller.start()


async def test_its_log_is_one_object_a_line_with_the_job(place: Place, controller: Process) -> None:
    job = await place.submit("logged", replicas=1)
    await job.runs(1)
    lines = [json.loads(line) for line in controller.log.read_text().splitlines()]
    about = [line for line in lines if (line.get("namespace"), line.get("job")) == (place.namespace, "logged")]
    assert about
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in about)


async def test_the_lease_says_who_leads(place: Place, controller: Process) -> None:
    lease = await place.made.kube.get(LEASES, SYSTEM, LEASE)
    assert lease["spec"]["holderIdentity"] == controller.name


async def test_a_second_one_waits_ready_and_follows_at_once_when_the_first_is_told_to_stop(
    place: Place, controller: Process, made: Made, line: Line
) -> None:
    second = Process(controller.log.parent, "ebb-controller-1", line.url, await made.token(), controller.settings)
    await second.start(leads=False)
    try:
        assert (await second.metrics())["ebb_leads"] == 0
        assert await second.page("readyz") == "ok\n"
        assert await controller.stop() == 0
        await second.until_leads(4)
        job = await place.submit(replicas=1)
        await job.runs(1)
    finally:
        await second.stop()
    await controller.start()


async def test_its_account_has_all_the_rights_that_it_uses(place: Place, line: Line) -> None:
    """Nothing that it asked in the tests so far was denied, but for pods that a quota did not let in, and for old records in
    namespaces that are not the stack's, which it leaves alone then."""
    denied = [one for one in line.asked if one.status in (401, 403) and not one.refused]
    expected = (("POST", "/pods"), ("GET", "/configmaps"))
    others = [one for one in denied if not any(one.method == verb and one.path.endswith(end) for verb, end in expected)]
    assert [str(one) for one in others] == []
    assert not [one for one in denied if f"/{JOBS}/" in one.path and one.method == "GET"]
    assert len(line.asked) > 20
