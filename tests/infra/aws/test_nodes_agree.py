"""Whatever the group: its labels, taints, resources and tags agree, AWS takes it, and the pods that are meant for it fit.

The groups are made by chance, always the same ones. What is compared are the machine that boots, by what EKS and EC2 are told;
the machine that the autoscaler imagines, by what it reads; and what `ebb-platform` says.
"""

import base64
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from ebb.api import platform as facts
from ebb.api.needs import Wish
from ebb.api.spec import Job
from ebb.controller.reconciler.candidates import pod_placement, sites
from ebb.controller.reconciler.pods import worker_pod
from infra.clouds.aws.machines import machine
from tests.infra.aws import api, scheduling
from tests.infra.aws.groups import asg_tags, at_random, settings, world
from tests.infra.declared import Declared
from workloads.cluster import CAPACITY_BLOCK, ON_DEMAND, SPOT, NodeGroup

Object = dict[str, Any]
BY_TYPE = ("pods", "cpu", "memory")  # what the autoscaler knows of an instance type, tags or no tags
COUNT, DECLARED, AT_ONCE = 200, 40, 20  # Pulumi waits for its calls in a time that grows with the square of their number
CHANCE = random.Random(20261121)
GROUPS = [at_random(CHANCE, index) for index in range(COUNT)]


@dataclass(frozen=True, kw_only=True)
class Told:
    """What AWS is told of a group."""

    labels: Mapping[str, str]
    taints: list[dict[str, str]]
    node_group_tags: Mapping[str, str]
    asg_tags: Mapping[str, str]
    efa_interfaces: int
    root_gib: int
    nvme_joined: bool


def told(one: NodeGroup) -> Told:
    found = machine.user_data(one, settings())
    return Told(
        labels=machine.labels(one),
        taints=machine.taints(one),
        node_group_tags=machine.template(one, settings()),
        asg_tags={**machine.template(one, settings()), **machine.stack_tags("dev", settings())},
        efa_interfaces=sum("efa" in each.kind for each in machine.interfaces(one)),
        root_gib=machine.disk(one, settings()).gib,
        nvme_joined="RAID0" in base64.b64decode(found or "").decode(),
    )


@pytest.fixture(scope="module")
def worlds() -> Mapping[str, Declared]:
    """The first groups as they are declared, by name."""
    found: dict[str, Declared] = {}
    for start in range(0, DECLARED, AT_ONCE):
        some = GROUPS[start : start + AT_ONCE]
        found |= dict.fromkeys((one.name for one in some), world(some))
    return found


def test_the_groups_are_of_all_kinds() -> None:
    for some in (GROUPS, GROUPS[:DECLARED]):
        assert {one.capacity_type for one in some} == {SPOT, ON_DEMAND, CAPACITY_BLOCK}
        assert {one.instance.gpus > 0 for one in some} == {True, False}
        assert {machine.efa_interfaces(one) > 0 for one in some} == {True, False}
        assert {machine.disk(one, settings()).local_gib > 0 for one in some} == {True, False}
        assert any(one.others for one in some)


def test_what_is_declared_is_what_the_group_says(worlds: Mapping[str, Declared]) -> None:
    for one in GROUPS[:DECLARED]:
        inputs = worlds[one.name].one("NodeGroup", one.name).inputs
        template = worlds[one.name].one("LaunchTemplate", one.name).inputs
        declared = Told(
            labels=inputs["labels"],
            taints=inputs.get("taints", []),
            node_group_tags=inputs["tags"],
            asg_tags=asg_tags(worlds[one.name], one.name),
            efa_interfaces=sum("efa" in each["interfaceType"] for each in template.get("networkInterfaces", [])),
            root_gib=template["blockDeviceMappings"][0]["ebs"]["volumeSize"],
            nvme_joined="RAID0" in base64.b64decode(template.get("userData", "")).decode(),
        )
        assert declared == told(one), one.name


def test_eks_and_ec2_take_it(worlds: Mapping[str, Declared]) -> None:
    for one in GROUPS[:DECLARED]:
        inputs = worlds[one.name].one("NodeGroup", one.name).inputs
        asked = api.request(inputs, {"nodeRoleArn": "nodeRole", "subnetIds": "subnets"})
        asked["nodegroupName"] = f"{one.name}-0123456"  # Pulumi's work
        assert api.problems("eks", "CreateNodegroup", asked) == [], one.name
        template = worlds[one.name].one("LaunchTemplate", one.name).inputs
        assert api.problems("ec2", "CreateLaunchTemplate", _template_data(template), "RequestLaunchTemplateData") == [], one.name


def _template_data(inputs: Object) -> Object:
    data: Object = api.request(inputs, {"securityGroups": "Groups"}, capital=True)
    del data["Description"]  # of the version, beside the data
    for each in data["TagSpecifications"]:
        each["Tags"] = [{"Key": key, "Value": value} for key, value in each["Tags"].items()]
    return data


def test_the_check_by_botocores_model_finds_mistakes() -> None:
    """Or the test above would prove nothing."""
    asked = {"clusterName": "a", "nodegroupName": "b", "nodeRole": "c", "subnets": ["d"]}
    assert api.problems("eks", "CreateNodegroup", asked) == []
    assert len(api.problems("eks", "CreateNodegroup", {**asked, "amiType": "AL2023", "capacityType": "spot"})) == 2
    assert api.problems("eks", "CreateNodegroup", {**asked, "scalingConfig": {"maxSize": 0}})
    assert api.problems("eks", "CreateNodegroup", {**asked, "subnetIds": []})


def test_the_imagined_machine_is_the_one_that_boots() -> None:
    for one in GROUPS:
        booted, imagined = _booted(one, told(one)), _imagined(one, told(one))
        assert {key: imagined.labels.get(key) for key in booted.labels} == booted.labels, one.name
        assert imagined.taints == booted.taints, one.name
        promised = {name: amount for name, amount in imagined.allocatable.items() if amount and name not in BY_TYPE}
        for name in ("ephemeral-storage", "hugepages-2Mi"):  # never more than there is
            assert promised.pop(name, 0.0) <= booted.allocatable.get(name, 0.0), one.name
        assert promised == {name: amount for name, amount in booted.allocatable.items() if "/" in name}, one.name


def _imagined(one: NodeGroup, said: Told) -> scheduling.Node:
    described = scheduling.Described(labels=said.labels, taints=said.taints, tags=said.node_group_tags)
    return scheduling.template_node(said.asg_tags, described, one.instance.name, one.zone)


def _booted(one: NodeGroup, said: Told) -> scheduling.Node:
    """By no tag. The kubelet keeps 10 % of the disk, nodeadm 1 GiB of it; EFA's driver sets aside 5128 pages of 2 MiB."""
    first = machine.types(one)[0]
    disk = first.local_disk_gib * 1e9 if said.nvme_joined else said.root_gib * 2.0**30
    amounts = {
        "ephemeral-storage": 0.98 * disk * 0.9 - 2.0**30,
        **({"nvidia.com/gpu": float(first.gpus)} if first.gpus else {}),
        **({"vpc.amazonaws.com/efa": float(said.efa_interfaces), "hugepages-2Mi": 5128 * 2.0**21} if said.efa_interfaces else {}),
    }
    taints = frozenset((each["key"], each["value"], {"NO_SCHEDULE": "NoSchedule"}[each["effect"]]) for each in said.taints)
    return scheduling.Node(labels=said.labels, taints=taints, allocatable=amounts)


def test_what_ebb_platform_says_is_on_the_machines() -> None:
    for one in GROUPS:
        said, booted = one.facts(), _booted(one, told(one))
        assert said["labels"].items() <= booted.labels.items(), one.name
        assert {(each["key"], each["value"], each["effect"]) for each in said["taints"]} == booted.taints, one.name
        assert said["gpusPerNode"] == booted.allocatable.get("nvidia.com/gpu", 0), one.name


def test_a_jobs_pod_fits_the_group_that_it_is_sent_to() -> None:
    for one in GROUPS:
        assert scheduling.misfits(_worker(one), _imagined(one, told(one))) == [], one.name


def test_a_worker_with_a_whole_machine_gets_its_efa_interfaces_and_pages_for_their_buffers() -> None:
    """Of as many as the machine has; the pages, of the 10256 MiB that its driver sets aside."""
    for one in GROUPS:
        container = _worker(one)["spec"]["containers"][0]
        limits = container["resources"].get("limits", {})
        asked = {name: limits.get(name) for name in ("vpc.amazonaws.com/efa", "hugepages-2Mi")}
        count = sum("efa" in each.kind for each in machine.interfaces(one))
        assert asked == {
            "vpc.amazonaws.com/efa": str(count) if count else None, "hugepages-2Mi": "5120Mi" if count else None
        }, one.name  # fmt: skip
        env = {item["name"]: item.get("value") for item in container["env"]}
        assert env.get("FI_PROVIDER") == ("efa" if count else None), one.name
        assert "FI_EFA_USE_DEVICE_RDMA" not in env, "it ends programs on machines whose EFA has no RDMA"


def test_a_pod_does_not_fit_a_group_that_it_is_not_for() -> None:
    """Or the test above would prove nothing."""
    spot = next(one for one in GROUPS if one.instance.gpus and one.capacity_type == SPOT)
    node = _imagined(spot, told(spot))
    assert scheduling.misfits(_worker(replace(spot, zone="us-west-2e")), node) == [
        f"label topology.kubernetes.io/zone: {spot.zone!r}, wanted 'us-west-2e'"
    ]
    dear = _worker(replace(spot, capacity_type=ON_DEMAND))
    assert "taint ebb.dev/capacity-type=spot:NoSchedule" in scheduling.misfits(dear, node)
    greedy = _worker(spot)
    greedy["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 17
    assert scheduling.misfits(greedy, node) == [f"nvidia.com/gpu: 17.0, there is {spot.instance.gpus}.0"]


def _worker(one: NodeGroup) -> Object:
    """A worker that fills half a machine and takes all its GPUs, as the controller makes it of what `ebb-platform` says."""
    limits = {"nvidia.com/gpu": one.instance.gpus} if one.instance.gpus else {}
    requests = {"cpu": str(one.instance.cpu / 2), "memory": f"{one.instance.memory_gib // 2}Gi", "ephemeral-storage": "30Gi"}
    container = {"name": "elasticjob-worker", "image": "trainer", "resources": {"limits": limits, "requests": requests}}
    spec = {
        "rdzvEndpoint": "etcd-service:2379",
        "placement": {"capacity": one.capacity_type} if one.capacity_type != CAPACITY_BLOCK else {},
        "replicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": {"containers": [container]}}}},
    }
    job = Job.of({"metadata": {"name": "job", "namespace": "elastic-job", "uid": "0123456789"}, "spec": spec})
    (site,) = sites(Wish.of(job), _platform(one), None)
    return worker_pod(job, index=0, attempt=0, pod_placement=pod_placement(job, site.placed(), _platform(one)))


def _platform(one: NodeGroup) -> facts.Platform:
    texts = ("cloud", "region", "stack", "trainerImage", "jobsNamespace", "etcdEndpoint")
    described = {**dict.fromkeys(texts, "any"), "volumes": [], "nodeGroups": [one.facts()], "dashboards": {}}
    return facts.parse({"schema": facts.SCHEMA, "platform.json": json.dumps(described)})
