"""The machine usage record on a real API server, with the controller's own rights and no more."""

import asyncio
from typing import Any

from ebb.api.usage import NAME, NAMESPACE, GroupUsage, MachineUsage, read
from ebb.kube import CONFIG_MAPS, NotFound
from tests.apiserver.place import Place
from tests.apiserver.test_money import priced
from tests.apiserver.test_placement import gpu_job


async def usage(place: Place) -> MachineUsage | None:
    try:
        return read((await place.made.kube.get(CONFIG_MAPS, NAMESPACE, NAME))["data"])
    except NotFound:
        return None


async def held(place: Place, uid: str, machines: int) -> MachineUsage:
    """The usage record, once so many machines are held by a job."""
    async with asyncio.timeout(30):
        while True:
            found = await usage(place)
            if found is not None and sum((uid[:8], 1.0) in one.held for one in found.open.values()) == machines:
                return found
            await asyncio.sleep(0.05)


def total(found: MachineUsage) -> GroupUsage:
    return sum((line for lines in found.days.values() for line in lines.values()), GroupUsage())


async def test_the_usage_record_is_written_and_gone_on_with_by_the_next_controller(place: Place, controller: Any) -> None:
    async with priced(place):
        job = await gpu_job(place, replicas=2)
        await job.runs(2)
        first = await held(place, job.uid, 2)
        controller.kill()
        await controller.start()
        await job.scale(1)
        second = await held(place, job.uid, 1)
        assert second.begun == first.begun
        passed = second.until - first.until
        jobs = total(second).job_seconds - total(first).job_seconds
        assert 0 < jobs <= 2 * passed
        assert total(second).seconds >= total(first).seconds
        uid = job.uid
        await job.delete()
        await held(place, uid, 0)
