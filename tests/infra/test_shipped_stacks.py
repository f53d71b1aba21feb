"""The clouds' stacks as shipped may have machines for a job of 64 GPUs, as `ebb submit` reckons it: in each zone."""

import json

import pytest

from ebb.api.platform import Platform, parse
from ebb.client.submission.fit import find_fit
from ebb.client.submission.request import Request
from infra import clouds, config
from infra.account.costs import groups_of
from infra.config import Stack
from tests.infra.stacks import ROOT, STACKS, settings

LARGEST = 64  # GPUs of one job, as the product promises
RENTED = [name for name in STACKS if clouds.named(settings(name)["cloud"]).DIFFERENCES]
SHIPPED = {name: config.parse(settings(name) | {"jobs": []}, ROOT) for name in RENTED}


def platform(stack: Stack) -> Platform:
    """The platform as the stack's `ebb-platform` describes it, without images and volumes."""
    facts = {
        "cloud": stack.cloud, "region": "r", "stack": "s", "trainerImage": "trainer:1", "jobsNamespace": "ebb-jobs",
        "etcdEndpoint": "etcd:2379", "volumes": [], "nodeGroups": [group.facts() for group in groups_of(stack)], "dashboards": {},
    }  # fmt: skip
    return parse({"schema": "1", "platform.json": json.dumps(facts)})


PLACES = sorted(
    {
        (name, group.instance.gpu_type, group.zone)
        for name, stack in SHIPPED.items()
        for group in groups_of(stack)
        if group.instance.gpus
    }
)


@pytest.mark.parametrize(("name", "gpu", "zone"), PLACES)
def test_each_zone_holds_a_job_of_64_gpus(name: str, gpu: str, zone: str) -> None:
    wanted = Request(name="job", arguments=("train.py",), gpus=LARGEST, gpu=gpu, zone=zone)
    fit = find_fit(wanted, platform(SHIPPED[name]))
    assert fit.workers * fit.gpus_per_worker == LARGEST
    assert fit.zones == (zone,)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_stack_has_t4_and_a100(name: str) -> None:
    assert {"T4", "A100"} <= {group.instance.gpu_type for group in groups_of(SHIPPED[name])}


@pytest.mark.parametrize("name", SHIPPED)
def test_machines_for_jobs_cost_nothing_while_there_are_none(name: str) -> None:
    assert all(group.min == 0 for group in groups_of(SHIPPED[name])[1:])
