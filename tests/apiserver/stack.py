"""A stack as the Pulumi program describes it, and what an autoscaler says: both written by the test.

async with stack(made, group("spot-a", zone="local-a"), group("spot-b", zone="local-b")) as it:
    await it.refuses(pod, "pod didn't trigger scale-up: 1 in backoff after failed scale-up")
    await it.backs_off("spot-a", "InsufficientInstanceCapacity: no T4 left")
"""

import itertools
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import yaml

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, EVENTS
from tests.apiserver.place import article
from tests.apiserver.plane import JOBS, SYSTEM, Made, gone

Object = dict[str, Any]
GPU = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}  # of a container
ZONES = ("local-a", "local-b")
_numbers = itertools.count(1)


def group(name: str, **changes: Any) -> Object:
    """A spot group of up to 4 machines with one T4, for 1 USD an hour on demand; machines come within a second."""
    return {
        "name": name, "zone": "local-a", "instanceType": "box.t4", "gpuType": "T4", "gpusPerNode": 1, "cpu": 4, "memoryGiB": 8,
        "capacityType": "spot", "min": 0, "max": 4, "pricePerHourOnDemand": 1.0, "spotDiscount": 0.7, "provisionSeconds": 1,
        "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}], **changes,
    }  # fmt: skip


class Stack:
    """See the module's docstring."""

    def __init__(self, made: Made) -> None:
        self.made = made
        self._backing_off: dict[str, str] = {}
        self._groups: list[str] = []

    async def describe(self, *groups: Object, **changes: Any) -> None:
        """Write ConfigMap ebb-platform."""
        self._groups = [one["name"] for one in groups]
        platform = {
            "cloud": "local", "region": "local", "stack": "test", "trainerImage": "trainer", "jobsNamespace": "elastic-job",
            "etcdEndpoint": "etcd-service:2379", "volumes": [], "nodeGroups": list(groups), "dashboards": {}, **changes,
        }  # fmt: skip
        await self._write(SYSTEM, "ebb-platform", {"schema": "1", "platform.json": json.dumps(platform)})
        zones = ", ".join(sorted({one["zone"] for one in groups}))
        await self._is_known(f"which has {zones};", names.WAITING_FOR_ZONE)

    async def spoil(self) -> None:
        """As a newer program would write it, for another version of Ebb."""
        await self._write(SYSTEM, "ebb-platform", {"schema": "99"})
        await self._is_known("'99'", names.WAITING_FOR_PLATFORM)

    async def refuses(self, pod: Object, message: str) -> None:
        """The autoscaler makes no machine for this pod."""
        await self._event(pod, "NotTriggerScaleUp", message)

    async def asks_for_machines(self, pod: Object) -> None:
        await self._event(pod, "TriggeredScaleUp", "pod triggered scale-up: [{spot-a 0->1 (max: 4)}]")

    async def backs_off(self, group: str, message: str) -> None:
        """The autoscaler could not get machines of a group, and says in its report why."""
        self._backing_off[group] = message
        await self._report()

    async def recovers(self) -> None:
        self._backing_off.clear()
        await self._report()

    async def remove(self) -> None:
        for namespace, name in ((SYSTEM, "ebb-platform"), (SYSTEM, "cluster-autoscaler-status")):
            await gone(self.made.kube.delete(CONFIG_MAPS, namespace, name))
        await self._is_known("", names.WAITING_FOR_WORKERS, names.WAITING_FOR_MACHINES)

    async def _is_known(self, words: str, *reasons: str) -> None:
        """The controller has heard of it, as a job shows that wants to go where there is nothing. One that came before the news
        may be placed by then, and stays so: the next one is asked."""
        deadline, said = time.monotonic() + 15, {"reason": "", "message": ""}
        while said["reason"] not in reasons or words not in said["message"]:
            assert time.monotonic() < deadline, f"the controller does not know the stack ({reasons} {words}): {said}"
            said = await self._probe()

    async def _probe(self) -> Object:
        """The first thing that such a job is told about its workers."""
        name = f"probe-{next(_numbers)}"
        await self.made.kube.create(ELASTIC_JOBS, JOBS, article(name, JOBS, replicas=1, placement={"zone": "nowhere"}))

        def told() -> Object | None:
            job = self.made.seen.get(ELASTIC_JOBS, JOBS, name) or {}
            conditions = (job.get("status") or {}).get("conditions") or ()
            return next((one for one in conditions if one["type"] == names.RUNNING), None)

        said = await self.made.seen.until(f"{name} is told", told)
        await gone(self.made.kube.delete(ELASTIC_JOBS, JOBS, name))
        return said

    async def _report(self) -> None:
        report = {"autoscalerStatus": "Running", "nodeGroups": [self._state(name) for name in self._groups]}
        await self._write(SYSTEM, "cluster-autoscaler-status", {"status": yaml.safe_dump(report)})

    def _state(self, name: str) -> Object:
        if name not in self._backing_off:
            return {"name": name, "scaleUp": {"status": "NoActivity"}}
        said = {"errorCode": "OUT_OF_RESOURCES", "errorMessage": self._backing_off[name]}
        return {"name": name, "scaleUp": {"status": "Backoff", "backoffInfo": said}}

    async def _event(self, pod: Object, reason: str, message: str) -> None:
        metadata, at = pod["metadata"], stamp(time.time())
        about = {"kind": "Pod", "apiVersion": "v1", **{key: metadata[key] for key in ("name", "namespace", "uid")}}
        name = {"name": f"{metadata['name']}.{next(_numbers)}", "namespace": metadata["namespace"]}
        event = {
            "apiVersion": "v1", "kind": "Event", "metadata": name, "involvedObject": about, "reason": reason, "message": message,
            "type": "Normal", "firstTimestamp": at, "lastTimestamp": at, "count": 1, "source": {"component": "autoscaler"},
        }  # fmt: skip
        await self.made.kube.create(EVENTS, metadata["namespace"], event)

    async def _write(self, namespace: str, name: str, data: dict[str, str]) -> None:
        item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        await self.made.kube.apply(CONFIG_MAPS, namespace, item, manager="stack")


@asynccontextmanager
async def stack(made: Made, *groups: Object, **changes: Any) -> AsyncIterator[Stack]:
    """A stack with these node groups, until the block ends; one in each zone, the first cheaper, if none is given."""
    one = Stack(made)
    prices = {"local-a": 1.0, "local-b": 2.0}
    known = groups or tuple(group(f"spot-{zone[-1]}", zone=zone, pricePerHourOnDemand=prices[zone]) for zone in ZONES)
    await one.describe(*known, **changes)
    try:
        yield one
    finally:
        await one.remove()
