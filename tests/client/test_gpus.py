"""GPUs of a platform: free now, to come, reclaims by zone, stockouts by zone."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.api.contract import LABEL_NODE_GROUP, TAINT_RECLAIM
from ebb.api.platform import parse
from ebb.client.gpus import GpuGroup, GpuReport, gpus
from ebb.client.platform.connection import Ebb
from ebb.client.submission.fit import find_fit
from ebb.client.submission.outlook import outlook
from ebb.client.submission.request import Request
from ebb.kube import NODES, Denied, Object, Resource
from tests.cli.world import NS, FakeKube, elastic_job, node_group, platform_map, worker_pod
from tests.client.test_money import SPOT, record, record_map, usage, usage_map

NOW = time.time()
FOUR = node_group("t4x4", "local-b", gpusPerNode=4, pricePerHourOnDemand=4.0, spotDiscount=0.5, max=2)


def node(name: str, group: str, number: int = 1, *, ready: str = "True", taint: str = "") -> Object:
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {LABEL_NODE_GROUP: group}},
        "spec": {"taints": [{"key": taint}]} if taint else {},
        "status": {"conditions": [{"type": "Ready", "status": ready}], "allocatable": {"nvidia.com/gpu": str(number)}},
    }  # fmt: skip


def pod(index: int, machine: str, phase: str = "Running") -> Object:
    made = worker_pod(index, node=machine)
    made["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    made["status"]["phase"] = phase
    return made


class Blind(FakeKube):
    """One may not look at machines."""

    async def list(self, resource: Resource, *arguments: Any, **more: Any) -> list[Object]:
        if resource == NODES:
            raise Denied("no", status=403)
        return await super().list(resource, *arguments, **more)


def look(*objects: Object, kind: type[FakeKube] = FakeKube) -> GpuReport:
    platform = platform_map(FOUR)
    return asyncio.run(gpus(Ebb(kube=kind(platform, *objects), platform=parse(platform["data"]), namespace=NS)))


def of(report: GpuReport, group: str) -> GpuGroup:
    return next(one for one in report.groups if one.group.name == group)


def test_free_is_what_takes_workers_less_what_they_hold() -> None:
    report = look(
        node("a", "t4x4", 4), node("b", "t4x4", 4), node("c", "spot-t4-local-a", ready="False"),
        node("d", "spot-t4-local-c", taint=TAINT_RECLAIM),
        pod(0, "a"), pod(1, "a"), pod(2, "b", phase="Succeeded"),
    )  # fmt: skip
    four = of(report, "t4x4")
    assert (four.machines, four.gpus_now, four.gpus_free, four.gpus_to_come) == (2, 8, 6, 0)
    assert four.free_by_machine == (2, 4)
    for name in ("spot-t4-local-a", "spot-t4-local-c"):
        group = of(report, name)
        assert (group.machines, group.gpus_now, group.gpus_free, group.gpus_to_come) == (1, 0, 0, 3)
    assert (four.usd_per_gpu_hour, four.usd_on_demand_per_gpu_hour, four.price_assumed) == (0.5, 1.0, True)
    assert report.groups[-1] is four  # the dearest


def test_free_gpus_of_two_machines_are_no_room_for_one_worker() -> None:
    halves = look(node("a", "t4x4", 4), node("b", "t4x4", 4), *(pod(number, "ab"[number % 2]) for number in range(4)))
    platform = parse(platform_map(FOUR)["data"])
    request = Request(name="digits", arguments=("train.py",), gpus=4, min_gpus=4)
    fit = find_fit(request, platform)
    seen = outlook(request, fit, replace(halves, groups=(of(halves, "t4x4"),)), now=NOW)
    assert (of(halves, "t4x4").gpus_free, fit.gpus_per_worker) == (4, 4)
    assert (seen.fits_now, seen.machines_free) == (False, 0)


def test_a_usage_record_that_cannot_be_read_costs_what_it_would_say_and_no_more() -> None:
    broken = {**usage_map(usage()), "data": {"machines.json": "{"}}
    assert of(look(node("a", "t4x4", 4), broken), "t4x4").gpus_free == 4


def test_what_other_teams_hold_is_known_by_the_usage_record() -> None:
    made = usage()
    made.open["a"] = replace(SPOT, group="t4x4", gpus=4, held=(("theirs-1", 0.75),))
    assert of(look(node("a", "t4x4", 4), pod(0, "a"), usage_map(made)), "t4x4").gpus_free == 1


def test_who_may_not_look_at_machines_sees_the_rest() -> None:
    one = of(look(kind=Blind), "t4x4")
    assert (one.machines, one.gpus_now, one.gpus_free, one.gpus_to_come) == (None, None, None, None)
    assert one.usd_per_gpu_hour == 0.5


def test_reclaims_of_the_last_day_by_zone() -> None:
    history: list[Object] = [
        {"at": stamp(NOW - 9000), "what": "placed", "cause": "local-a"},
        {"at": stamp(NOW - 8000), "what": "reclaimed", "worker": 0, "node": "a", "cause": "ReclaimNotice"},
        {"at": stamp(NOW - 7000), "what": "placed", "cause": "local-b"},
        {"at": stamp(NOW - 6000), "what": "reclaimed", "worker": 1, "node": "b", "cause": "NodeGone"},
        {"at": stamp(NOW - 5000), "what": "failed", "worker": 1, "node": "b", "cause": "exit code 1"},
    ]
    old = [{**item, "at": stamp(NOW - 90_000)} for item in history]
    gone = record(1, 1, began=NOW - 4000, ended=NOW - 3000)
    before = record(2, 1, began=NOW - 99_000, ended=NOW - 98_000)
    report = look(elastic_job(history=history), elastic_job("old", history=old), record_map(gone), record_map(before))
    assert [(one.zone, one.count, one.last) for one in report.reclaims] == [
        ("local-a", 3, stamp(NOW - 3000)),
        ("local-b", 1, stamp(NOW - 6000)),
    ]


@pytest.mark.parametrize(("ago", "told"), [(60, 1), (7200, 0)])
def test_a_dry_zone_is_told_for_an_hour(ago: float, told: int) -> None:
    entry = {"zone": "local-a", "gpuType": "T4", "capacityType": "spot", "since": stamp(NOW - 9000), "message": "no T4 left"}
    older = {**entry, "at": stamp(NOW - 9000), "message": "older"}
    report = look(
        elastic_job(dry=[{**entry, "at": stamp(NOW - ago)}]),
        elastic_job("other", dry=[older]),
    )
    assert [one.message for one in report.dry] == ["no T4 left"] * told
