"""Memory that workers ask for fits every machine of the catalog, with what clouds and platform keep of it."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from ebb.api.needs import needs, workers_per_machine
from ebb.api.platform import Platform, parse
from ebb.client.submission.fit import find_fit
from ebb.client.submission.manifest import manifest
from ebb.client.submission.request import Request
from infra import catalog, clouds
from workloads.cluster import SPOT, InstanceType, NodeGroup

AGENTS_MIB = 512  # the platform's own pods on each machine
# The settings by which machines have a fast network between them, whatever the cloud calls it.
FAST, WITHOUT = (SimpleNamespace(**dict.fromkeys(("efa", "gpu_direct", "infiniband"), asked)) for asked in (True, False))
EVERY = [
    (cloud, one, settings)
    for cloud in clouds.names()
    for one in catalog.types(cloud)
    if one.gpus
    for settings in ([WITHOUT, FAST] if one.network(FAST) else [WITHOUT])
]


def node_group(instance: InstanceType, settings: Any = None) -> NodeGroup:
    return NodeGroup(
        name="workers", zone="a", instance=instance, capacity_type=SPOT, min=0, max=8, notice_seconds=30, settings=settings
    )


def stack(cloud: str, instance: InstanceType, settings: Any) -> Platform:
    groups = [node_group(instance, settings=settings).facts()]
    facts = {
        "cloud": cloud, "region": "r", "stack": "s", "trainerImage": "trainer:1", "jobsNamespace": "ebb-jobs",
        "etcdEndpoint": "etcd:2379", "volumes": [], "nodeGroups": groups, "dashboards": {},
    }  # fmt: skip
    return parse({"schema": "1", "platform.json": json.dumps(facts)})


@pytest.mark.parametrize(
    ("cloud", "instance", "settings"), EVERY, ids=[f"{cloud}-{one.name}{'-fast' * (at is FAST)}" for cloud, one, at in EVERY]
)
def test_one_worker_and_as_many_as_there_are_gpus_fit(cloud: str, instance: InstanceType, settings: Any) -> None:
    platform = stack(cloud, instance, settings)
    allocatable_mib = instance.allocatable_mib(settings) or instance.memory_gib * 1024
    for gpus, workers in ((instance.gpus, 1), (1, instance.gpus)):
        wanted = Request(name="job", arguments=("train.py",), gpus=gpus)
        fit = find_fit(wanted, platform)
        assert fit.gpus_per_worker * workers == instance.gpus
        assert workers * fit.memory_mib + AGENTS_MIB <= allocatable_mib
        assert workers * fit.memory_mib > 0.7 * instance.memory_gib * 1024, "nor is much of it left unused"
        template = manifest(wanted, fit, platform, "ebb-jobs")["spec"]["replicaSpecs"]["Worker"]["template"]
        assert workers_per_machine(needs(template), platform.node_groups[0]) == workers


def test_without_a_word_of_the_stack_a_quarter_is_left() -> None:
    local = catalog.by_gpu("local", "T4")
    assert local is not None
    assert "allocatableMemoryGiB" not in node_group(local).facts()
    assert find_fit(Request(name="job", arguments=("train.py",)), stack("local", local, None)).memory_mib == 6 * 1024
