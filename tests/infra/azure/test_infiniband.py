"""InfiniBand on Azure: what pools, plugins, images and the facts say where a line asks for it."""

import json
from typing import Any

import pytest

from ebb.api.platform import parse
from infra.clouds.azure import images, preflight
from infra.clouds.azure.look import Look
from infra.image_lock import pinned
from tests.infra.azure import stacks
from tests.infra.azure.fake_arm import FakeArm
from tests.infra.azure.world import inputs, world
from tests.infra.declared import Declared

NAME = "ib-westus2-1"
LINE: dict[str, Any] = {"gpu": "H100", "name": "ib", "zones": ["westus2-1"], "max": 4, "azure": {"infiniband": True}}
TAG = "k8s.io_cluster-autoscaler_node-template_resources_rdma_ib"


@pytest.fixture(scope="module")
def made() -> Declared:
    return world(stacks.stack({**stacks.small(), "nodeGroups": [LINE, {"gpu": "T4", "max": 8, "zones": ["westus2-1"]}]}))


def pod(found: Declared, name: str) -> dict[str, Any]:
    spec: dict[str, Any] = inputs(found, "DaemonSet", name)["spec"]["template"]["spec"]
    [term] = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "ebb.dev/node-group", "operator": "In", "values": [NAME]}]
    return spec


def test_plugin_facts_and_the_autoscalers_tag_name_one_resource(made: Declared) -> None:
    platform = parse(inputs(made, "ConfigMap", "ebb-platform")["data"])
    [network] = [group.network for group in platform.node_groups if group.network]
    assert (network.name, network.resources, network.environment) == ("InfiniBand", {"rdma/ib": "1"}, {"NCCL_NET": "IB"})
    [shared] = json.loads(inputs(made, "ConfigMap", "rdma-device-plugin")["data"]["config.json"])["configList"]
    assert f"{shared['resourcePrefix']}/{shared['resourceName']}" == "rdma/ib"
    assert str(shared["rdmaHcaMax"]) == network.resources["rdma/ib"] == inputs(made, "AgentPool", NAME)["tags"][TAG]
    assert TAG not in inputs(made, "AgentPool", "spot-t4-westus2-1")["tags"]


def test_the_plugin_hands_out_infiniband_alone(made: Declared) -> None:
    """Azure's accelerated networking is of the same vendor, and over Ethernet."""
    [shared] = json.loads(inputs(made, "ConfigMap", "rdma-device-plugin")["data"]["config.json"])["configList"]
    assert shared["selectors"] == {"vendors": ["15b3"], "linkTypes": ["infiniband"]}
    spec = pod(made, "rdma-device-plugin")
    assert spec["hostNetwork"] is True, "it asks for the links of the machine's network devices"
    mounts = {one["name"]: one["mountPath"] for one in spec["containers"][0]["volumeMounts"]}
    assert mounts["config"] == "/k8s-rdma-shared-dev-plugin"


def test_drivers_are_loaded_that_the_plugin_asks_for(made: Declared) -> None:
    words = pod(made, "ebb-rdma")["containers"][0]["command"]
    assert words[:4] == ["python3", "-m", "ebb.rdma", "--modules"]
    assert {"mlx5_ib", "ib_umad", "rdma_ucm", "ib_ipoib"} <= set(words[4:])


def test_a_stack_without_it_has_none_of_that() -> None:
    names = {one.name for one in world().all("DaemonSet")}
    assert names == {"daemon-set-ebb-notices", "nvidia-device-plugin"}


def test_its_libraries_go_into_the_images_of_groups_that_have_it() -> None:
    lines = [LINE, {"gpu": "T4", "max": 8, "image": "other"}]
    given = stacks.stack({**stacks.small(), "nodeGroups": lines, "trainers": {"other": {}}})
    arguments = {one.name: one.arguments for one in images.recipes(given)}
    assert arguments["default"] == {"BASE": pinned(images.BASE_IMAGE), "RDMA": "1"}
    assert arguments["other"] == {"BASE": pinned(images.BASE_IMAGE)}


FEATURE = "/providers/Microsoft.Features/providers/Microsoft.ContainerService/features/AKSInfinibandSupport"
REGISTER = (
    "az feature register --namespace Microsoft.ContainerService --name AKSInfinibandSupport; when `az feature show` says "
    "Registered: az provider register --namespace Microsoft.ContainerService"
)


@pytest.mark.parametrize(
    ("lines", "state", "found"),
    [
        ([LINE], "Registered", ("ok", "AKSInfinibandSupport is registered", "")),
        (
            [LINE],
            "NotRegistered",
            (
                "fail",
                "AKSInfinibandSupport is notregistered: without it machines of a pool may be on different InfiniBand networks",
                REGISTER,
            ),
        ),
        ([{"gpu": "T4", "max": 1}], "NotRegistered", ("ok", "none is needed", "")),
    ],
    ids=["registered", "not registered", "not needed"],
)
def test_preflight_asks_for_the_feature_where_it_is_needed(
    lines: list[dict[str, Any]], state: str, found: tuple[str, str, str]
) -> None:
    with FakeArm(
        {("GET", FEATURE): {"name": "Microsoft.ContainerService/AKSInfinibandSupport", "properties": {"state": state}}}
    ) as it:
        given = Look(stack_name="dev", stack=stacks.stack({**stacks.small(), "nodeGroups": lines}), arm=it.arm())
        [one] = preflight.features(given)
        assert (one.level, one.text, one.fix) == found
        assert [path for _, path, _, _ in it.seen] == ([FEATURE] if lines == [LINE] else [])
