"""The fast network of a worker's machine: who gets it, what the pod asks for, and that its author's words win."""

from collections.abc import Mapping
from typing import Any

import pytest

from ebb.api.platform import Network, NodeGroup, Platform
from ebb.api.spec import Job
from ebb.api.status import Placed
from ebb.controller.reconciler.candidates import pod_placement
from ebb.controller.reconciler.pods import worker_pod
from tests.builders import make_group, make_job, make_platform
from tests.looks import look

Object = dict[str, Any]
FABRIC = Network(
    name="EFA",
    resources={"vpc.amazonaws.com/efa": "4", "hugepages-2Mi": "5120Mi"},
    environment={"FI_PROVIDER": "efa", "FI_EFA_USE_HUGE_PAGE": "0"},
)
OTHER = Network(name="EFA", resources={"vpc.amazonaws.com/efa": "2"}, environment={})


CLAIMED = Network(
    name="GPUDirect RDMA", resources={}, environment={"NCCL_NET": "gIB"}, claim="interfaces-8", selector={"fast": "auto"}
)


def large(name: str = "large", **changes: Any) -> NodeGroup:
    values = {"gpu_type": "A100", "gpus_per_node": 8, "cpu": 96.0, "memory_gib": 1152.0, "max": 3, "network": FABRIC, **changes}
    return make_group(name, **values)


def whole(gpus: int = 8, **container: Any) -> Object:
    limits = {"nvidia.com/gpu": gpus, **container.pop("limits", {})}
    return {"container": {"resources": {"limits": limits, **container.pop("resources", {})}, **container}}


def placed(job: Object, platform: Platform) -> Placed:
    found = look(job, platform=platform).status.placement
    assert found is not None
    return found


def pod_spec(job: Object, platform: Platform) -> Object:
    made = Job.of(job)
    pod = worker_pod(made, index=0, attempt=0, pod_placement=pod_placement(made, placed(job, platform), platform))
    return dict(pod["spec"])


def container(job: Object, platform: Platform) -> Object:
    return dict(pod_spec(job, platform)["containers"][0])


def variables(found: Object) -> Mapping[str, str | None]:
    return {item["name"]: item.get("value") for item in found["env"]}


def test_a_worker_that_takes_a_whole_machine_gets_its_network() -> None:
    job, platform = make_job(**whole()), make_platform(large())
    assert placed(job, platform).network == "EFA"
    found = container(job, platform)
    assert found["resources"]["limits"].items() >= {"nvidia.com/gpu": 8, **FABRIC.resources}.items()
    assert variables(found).items() >= FABRIC.environment.items()


WITHOUT: dict[str, tuple[Object, Platform]] = {
    "part of a machine": (whole(4), make_platform(large())),
    "no GPUs": ({}, make_platform(large())),
    "machines without it": (whole(), make_platform(large(network=None))),
    "some machines of the place lack it": (whole(), make_platform(large(), large("older", network=None))),
    "the machines of the place differ": (whole(), make_platform(large(), large("older", network=OTHER))),
    "another zone's machines do not reach it": (
        {**whole(), "placement": {"zone": "any"}},
        make_platform(large(), large("other", zone="local-b")),
    ),
}


@pytest.mark.parametrize(("job", "platform"), WITHOUT.values(), ids=WITHOUT)
def test_other_workers_use_tcp(job: Object, platform: Platform) -> None:
    assert placed(make_job(**job), platform).network == ""
    found = container(make_job(**job), platform)
    assert not {*FABRIC.resources} & {*((found.get("resources") or {}).get("limits") or {})}
    assert not {*FABRIC.environment} & {*variables(found)}


def test_machines_that_the_job_does_not_use_do_not_matter() -> None:
    """Of another zone, of another way of buying, too small."""
    others = (
        large("b", zone="local-b", network=None, on_demand_usd_per_hour=9.0),
        large("od", capacity_type="on-demand", network=None),
        large("half", gpus_per_node=4, network=None),
    )
    job = make_job(**whole(), placement={"capacity": "spot"})
    assert placed(job, make_platform(large(), *others)).network == "EFA"


def test_what_the_author_wrote_stays() -> None:
    written: Object = {"limits": {"vpc.amazonaws.com/efa": 1}, "env": [{"name": "FI_PROVIDER", "value": "tcp"}]}
    found = container(make_job(**whole(**written)), make_platform(large()))
    assert found["resources"]["limits"] == {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 1, "hugepages-2Mi": "5120Mi"}
    assert variables(found)["FI_PROVIDER"] == "tcp"


def test_huge_pages_alone_are_refused_by_kubernetes_so_the_container_asks_for_memory_too() -> None:
    resources = container(make_job(**whole()), make_platform(large()))["resources"]
    assert "memory" in resources["requests"]


def test_workers_of_a_job_that_began_on_tcp_stay_on_it() -> None:
    """A stack that gets a fast network while the job runs: NCCL needs the same one in all of them."""
    job = Job.of(make_job(**whole()))
    before = Placed(zone="local-a", capacity_type="spot", gpu_type="A100")
    assert pod_placement(job, before, make_platform(large())).network is None


def test_it_is_forgotten_where_the_stack_has_it_no_more() -> None:
    job = Job.of(make_job(**whole()))
    before = Placed(zone="local-a", capacity_type="spot", gpu_type="A100", network="EFA")
    assert pod_placement(job, before, make_platform(large(network=None))).network is None


def test_interfaces_that_kubernetes_hands_out_are_claimed_by_the_pod_and_its_training_container() -> None:
    spec = pod_spec(make_job(**whole()), make_platform(large(network=CLAIMED)))
    assert spec["resourceClaims"] == [{"name": "ebb-network", "resourceClaimTemplateName": "interfaces-8"}]
    [training] = spec["containers"]
    assert training["resources"]["claims"] == [{"name": "ebb-network"}]
    assert training["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert variables(training)["NCCL_NET"] == "gIB"
    assert spec["nodeSelector"].items() >= {"fast": "auto"}.items()


def test_a_claim_that_the_author_wrote_stays_alone() -> None:
    """Two of one template would ask for twice as many interfaces as a machine has."""
    job = make_job(**whole(resources={"claims": [{"name": "mine"}]}))
    spec = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "mine", "resourceClaimTemplateName": "interfaces-8"}]
    made = pod_spec(job, make_platform(large(network=CLAIMED)))
    assert made["resourceClaims"] == spec["resourceClaims"]
    assert made["containers"][0]["resources"]["claims"] == [{"name": "mine"}]


def test_a_job_of_a_namespace_without_the_template_uses_tcp() -> None:
    """Its pods would wait for ever for a claim that nothing makes."""
    job, platform = make_job(**whole()), make_platform(large(network=CLAIMED))
    job["metadata"]["namespace"] = "team"
    assert placed(job, platform).network == ""
    spec = pod_spec(job, platform)
    assert ("resourceClaims" in spec, "NCCL_NET" in variables(spec["containers"][0])) == (False, False)
    assert placed(job, make_platform(large())).network == "EFA"
