"""GPUDirect RDMA on Google Cloud: what pools, images, the cluster and the facts say where a line asks for it."""

from typing import Any

import pytest

from infra.clouds.gcp import images
from infra.config import ROOT
from infra.image_lock import pinned
from tests.infra.declared import Declared
from tests.infra.gcp.stacks import facts, stack, usual, world

NAME = "h200-us-central1-a"
ZONE = {"max": 2, "zones": ["us-central1-a"]}
LINE: dict[str, Any] = {"gpu": "H200", "name": "h200", **ZONE, "gcp": {"gpuDirect": True, "compactPlacement": True}}
PROFILE = {"gke.networks.io/accelerator-network-profile": "auto"}


@pytest.fixture(scope="module")
def made() -> Declared:
    return world({"nodeGroups": [LINE, {"gpu": "T4", **ZONE}]})


def test_gke_makes_the_networks_of_such_a_pool_and_of_no_other(made: Declared) -> None:
    pool = made.one("NodePool", NAME).inputs
    assert pool["networkConfig"] == {"acceleratorNetworkProfile": "auto"}
    assert pool["placementPolicy"] == {"type": "COMPACT"}
    assert "networkConfig" not in made.one("NodePool", "spot-t4-us-central1-a").inputs


def test_the_label_that_turns_gkes_driver_on_is_in_pool_and_facts(made: Declared) -> None:
    label = "cloud.google.com/gke-networking-dra-driver"
    assert made.one("NodePool", NAME).inputs["nodeConfig"]["labels"] == facts({"nodeGroups": [LINE]})[NAME]["labels"]
    assert facts({"nodeGroups": [LINE]})[NAME]["labels"][label] == "true"
    assert label not in made.one("NodePool", "spot-t4-us-central1-a").inputs["nodeConfig"]["labels"]


def test_gke_may_make_networks_before_the_pool_and_only_then(made: Declared) -> None:
    role = made.one("IAMMember", "gke-networks")
    assert role.inputs["role"] == "roles/compute.networkAdmin"
    assert role.inputs["member"] == "serviceAccount:service-1@container-engine-robot.iam.gserviceaccount.com"
    assert role.key in made.before(made.one("NodePool", NAME))
    assert role.key not in made.before(made.one("NodePool", "spot-t4-us-central1-a"))
    assert not [one for one in usual().all("IAMMember") if one.name == "gke-networks"]


def test_workers_claim_all_interfaces_by_a_template_of_the_jobs_namespace(made: Declared) -> None:
    told = facts({"nodeGroups": [LINE]})[NAME]["network"]
    template = made.one("ResourceClaimTemplate").inputs
    assert (told["name"], told["claim"], told["resources"], told["selector"]) == (
        "GPUDirect RDMA",
        "gpudirect-rdma-8",
        {},
        PROFILE,
    )
    assert template["metadata"] == {"name": told["claim"], "namespace": "elastic-job"}
    [request] = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {"deviceClassName": "mrdma.google.com", "allocationMode": "ExactCount", "count": 8}
    assert not usual().all("ResourceClaimTemplate")


def test_nccl_is_told_of_googles_plugin_and_of_the_machines_tuning() -> None:
    said = facts({"nodeGroups": [LINE]})[NAME]["network"]["environment"]
    assert (said["NCCL_NET"], said["NCCL_SOCKET_IFNAME"]) == ("gIB", "eth0")
    assert said["NCCL_TUNER_CONFIG_PATH"] == "/usr/local/gib/configs/tuner_config_a3u.txtpb"


def test_a_type_of_the_stacks_own_has_it_like_the_one_that_it_is_like() -> None:
    """A4, whose price no list has that could be read."""
    own = {"a4-highgpu-8g": {"like": "a3-ultragpu-8g", "gpu": "B200", "usdPerHour": 100.0}}
    line = {"instanceTypes": ["a4-highgpu-8g"], "name": "b200", **ZONE, "gcp": {"gpuDirect": True}}
    changes = {"nodeGroups": [line], "instanceTypes": own}
    told, pool = facts(changes)["b200-us-central1-a"]["network"], world(changes).one("NodePool", "b200-us-central1-a").inputs
    assert told["environment"]["NCCL_TUNER_CONFIG_PATH"].endswith("tuner_config_a4.txtpb")
    assert (pool["nodeConfig"]["guestAccelerators"][0]["type"], pool["nodeConfig"]["diskType"]) == (
        "nvidia-b200", "hyperdisk-balanced"
    )  # fmt: skip


def test_the_plugin_goes_into_the_images_of_groups_that_have_it() -> None:
    given = stack({"nodeGroups": [LINE, {"gpu": "T4", **ZONE, "image": "other"}], "trainers": {"other": {}}})
    arguments = {one.name: one.arguments for one in images.recipes(given)}
    assert arguments["default"] == {"BASE": pinned(images.BASE), "RDMA": "1", "GIB": pinned(images.GIB)}
    assert arguments["other"] == {"BASE": pinned(images.BASE)}
    lines = (ROOT / "trainer/Dockerfile").read_text().splitlines()
    assert set(arguments["default"]) <= {line.removeprefix("ARG ").split("=")[0] for line in lines if line.startswith("ARG ")}


def test_machines_with_it_let_workers_lock_memory(made: Declared) -> None:
    pod = made.one("DaemonSet", "ebb-rdma").inputs["spec"]["template"]["spec"]
    [term] = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "ebb.dev/node-group", "operator": "In", "values": [NAME]}]
    assert (pod["hostPID"], pod["containers"][0]["command"]) == (True, ["python3", "-m", "ebb.rdma"])
    assert not [one for one in usual().all("DaemonSet") if one.name == "ebb-rdma"]
