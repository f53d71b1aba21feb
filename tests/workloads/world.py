"""A stack on a cloud that needs everything: autoscaler, device plugins, static volumes, two trainer images. And its objects.

    world = stack()                         # all that the program registers (tests.infra.declared)
    world = example("dev")                  # the same of a stack of the repository
    objects(world)                          # the Kubernetes objects in it, as an API server gets them

The cloud is made up, catalog and settings too, so that these tests neither change with a real one nor need one.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import pulumi
from pulumi_kubernetes.core.v1 import ConfigMap
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pulumi_kubernetes.provider import Provider as KubernetesProvider

from infra import clouds, config, program
from infra.cloud import Cloud
from infra.config import Section
from tests.infra.cases import CASES
from tests.infra.declared import Declared, declared
from tests.infra.stacks import settings
from workloads.cluster import (
    DEFAULT_IMAGE,
    LABEL_GPU_TYPE,
    LABEL_NODE_GROUP,
    ON_DEMAND,
    SPOT,
    Autoscaler,
    Cluster,
    DeviceClaim,
    DevicePlugin,
    Helpers,
    Images,
    InstanceType,
    Network,
    NodeGroup,
    RdmaMachines,
    Storage,
    Volume,
)
from workloads.logs import Destination, files
from workloads.monitoring import Managed

Object = dict[str, Any]


class Fast(InstanceType):
    """A machine with interfaces that Kubernetes hands out."""

    def network(self, _settings: Any) -> Network:
        claim = DeviceClaim(name="interfaces-4", device_class="fast.example.org", count=4)
        return Network(name="Fast", environment={"NCCL_NET": "fast"}, claim=claim, labels={"example.org/driver": "on"})


TYPES = (
    InstanceType(name="plain", cpu=2, memory_gib=8, usd_per_hour=0.1),
    InstanceType(name="small", cpu=4, memory_gib=16, usd_per_hour=0.5, gpu_type="T4", gpus=1, spot_discount=0.6),
    Fast(name="large", cpu=32, memory_gib=244, usd_per_hour=12.0, gpu_type="V100", gpus=4, spot_discount=0.6),
)
SETTINGS: Mapping[str, Any] = {
    "cloud": "elsewhere",
    "elsewhere": {},
    "manager": {"zone": "north-a", "instanceType": "plain"},
    "storage": {"dataGiB": 50, "outputGiB": 50},
    "zones": ["north-a", "north-b"],
    "trainers": {"cuda12": {"cuda": "12.6"}},
    "nodeGroups": [
        {"gpu": "T4", "capacity": "spot", "max": 4},
        {
            "instanceTypes": ["large"],
            "capacity": "spot",
            "zones": ["north-b"],
            "max": 4,
            "name": "old",
            "image": "cuda12",
        },
    ],
    "digits": True,
    "datasets": [
        {
            "name": "tiny-imagenet-200",
            "url": "https://example.org/t.zip",
            "md5": "90528d7ca1a48142e341f4ef8d21d0de",
            "kind": "tiny-imagenet",
        },
        {"name": "birds", "url": "https://example.org/birds.tar", "sha256": "ab" * 32},
    ],
    "jobs": ["workloads/jobs/tiny-imagenet.yaml", "workloads/jobs/imagenet-fsx.yaml"],
}


class Elsewhere:
    """See infra.cloud.Infrastructure. Machines, file systems and add-ons are ConfigMaps here: things that take time."""

    notice_seconds = 120

    def cluster(self) -> Cluster:
        return Cluster(name="elsewhere", region="north", provider=KubernetesProvider("cluster", kubeconfig="{}"))

    def node_group(self, cluster: Cluster, group: NodeGroup) -> pulumi.Resource:
        return _thing(f"machines-{group.name}", cluster, [])

    def add_ons(self, cluster: Cluster, manager: pulumi.Resource) -> Sequence[pulumi.Resource]:
        return [_thing("add-ons", cluster, [manager])]

    def images(self, cluster: Cluster) -> Images:
        trainers = {DEFAULT_IMAGE: "example.org/trainer@sha256:1", "cuda12": "example.org/trainer@sha256:2"}
        return Images(
            controller=pulumi.Output.from_input("example.org/controller@sha256:3"),
            trainers={name: pulumi.Output.from_input(image) for name, image in trainers.items()},
            etcd=pulumi.Output.from_input("example.org/etcd:3.6.8"),
            legacy_etcd=pulumi.Output.from_input("example.org/etcd:3.5.21"),
        )

    def storage(self, cluster: Cluster, add_ons: Sequence[pulumi.Resource]) -> Storage:
        jobs = tuple(_volume(name, f"ebb-{name}", f"/mnt/{name}") for name in ("data", "output", "fsx"))
        etcd = _volume("etcd-data", "etcd-data", "/var/lib/etcd", access_mode="ReadWriteOnce")
        return Storage(jobs=jobs, root=_volume("efs", "efs-claim", "/mnt/efs"), etcd=etcd)

    def helpers(self, cluster: Cluster, groups: Sequence[NodeGroup]) -> Helpers:
        return Helpers(
            autoscaler=Autoscaler(
                image="registry.k8s.io/autoscaling/cluster-autoscaler:v1.35.0",
                arguments=["--cloud-provider=elsewhere", "--expander=priority,least-waste"],
                environment={"REGION": pulumi.Output.from_input("north")},
                priorities={10: ["on-demand"], 50: ["spot-.*"]},
            ),
            device_plugins=(
                DevicePlugin(name="gpus", image="example.org/gpus:1", label=LABEL_GPU_TYPE, values=["T4", "V100"]),
                DevicePlugin(
                    name="fast-network",
                    image="example.org/network:1",
                    label=LABEL_NODE_GROUP,
                    values=["old-north-b"],
                    privileged=True,
                    environment={"LEVEL": "1"},
                    config=("/etc/network/config.json", '{"interfaces": 4}'),
                ),
            ),
            rdma=RdmaMachines(groups=["old-north-b"], modules=["ib_umad", "rdma_ucm"]),
            gpu_figures=True,
        )

    def monitoring(self, cluster: Cluster, needs: Sequence[pulumi.Resource]) -> Managed:
        return Managed(links={"metrics": "https://elsewhere.example.org/metrics"})

    def logs(self, cluster: Cluster, needs: Sequence[pulumi.Resource]) -> Destination:
        return files(_volume("logs", "ebb-logs", "/logs"))

    def outputs(self, cluster: Cluster) -> Mapping[str, pulumi.Input[Any]]:
        return {"kubeconfig": "{}"}


class ElsewhereCloud(Cloud):
    """See infra.cloud.Cloud."""

    MANAGED_MONITORING = "figures of the north"

    TYPES = TYPES
    CAPACITIES = (SPOT, ON_DEMAND)
    Settings = Section

    def make(self, stack: config.Stack) -> Elsewhere:
        return Elsewhere()


def _thing(name: str, cluster: Cluster, needs: Sequence[pulumi.Resource]) -> pulumi.Resource:
    metadata: ObjectMetaArgsDict = {"name": name, "namespace": "default"}
    return ConfigMap(name, metadata=metadata, opts=cluster.options(depends_on=needs))


def _volume(name: str, claim: str, path: str, access_mode: str = "ReadWriteMany") -> Volume:
    return Volume(
        name=name,
        claim=claim,
        mount_path=path,
        size_gib=10,
        access_mode=access_mode,
        storage_class=pulumi.Output.from_input(""),
        volume_name=pulumi.Output.from_input(f"volume-{name}"),
    )


def stack(**changes: Any) -> Declared:
    """The program's declarations on that cloud for these settings."""
    with mock.patch.multiple(clouds, names=lambda: ("elsewhere",), named=lambda name: ElsewhereCloud()):
        checked = config.parse({**SETTINGS, **changes}, config.ROOT)
        return declared(lambda: program.declare(checked, Elsewhere()), stack="test")


def example(name: str, **changes: Any) -> Declared:
    """The program's declarations for a stack of the repository, on its own cloud; `changes`: other keys of its settings."""
    known = config.parse({**settings(name), **changes}, config.ROOT, stack=name) if changes else config.read(name)
    cloud = clouds.named(known.cloud).make(known)
    own = next((case.answers for case in CASES if case.cloud == known.cloud), {})
    return declared(lambda: program.declare(known, cloud), stack=name, answers=own)


def objects(world: Declared) -> list[Object]:
    """The objects for the API server; what stands for machines and add-ons is not among them, nor are patches of others'."""
    return [item for item, patch in _inputs(world) if not patch]


def patches(world: Declared) -> list[Object]:
    """The fields that the stack sets of objects that it does not make."""
    return [item for item, patch in _inputs(world) if patch]


def _inputs(world: Declared) -> list[tuple[Object, bool]]:
    made = [one for one in world.resources if one.type.startswith("kubernetes:")]
    kept = [one for one in made if one.inputs["metadata"].get("namespace") != "default"]
    return [(_whole(one.inputs), one.kind.endswith("Patch")) for one in kept]


def _whole(value: Any) -> Any:
    """The engine's protocol has floats only; JSON has whole numbers."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def pod_template(workload: Object) -> Object | None:
    """Of anything that makes pods."""
    spec = workload.get("spec", {})
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    template: Object | None = spec.get("template")
    return template
