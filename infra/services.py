"""What runs in the cluster, the same on every cloud: namespaces, priorities, claims, etcd, the controller, the facts, the digits.

Each function declares one concern and returns what others depend on. Texts of workloads/ are read as files, never imported. Every
pod here passes Pod Security `restricted`. Which cloud it is nobody knows here.
"""

from collections.abc import Sequence
from typing import Any

import pulumi
from pulumi_kubernetes import batch, core, scheduling
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.apps.v1 import StatefulSet
from pulumi_kubernetes.core.v1 import (
    ContainerArgsDict,
    PersistentVolumeClaimSpecArgsDict,
    PodSpecArgsDict,
    ProbeArgsDict,
    SecurityContextArgsDict,
    VolumeArgsDict,
    VolumeMountArgsDict,
)

from infra import manifests
from infra.cloud import LABEL_NODE_GROUP, Cluster, Images, NodeGroup, Storage, Volume
from infra.config import JOB_API, JOB_KIND

SYSTEM, JOBS = "ebb-system", "elastic-job"
PLATFORM_PRIORITY, JOB_PRIORITY = "ebb-system", "ebb-job"
ETCD, ETCD_PORT = "etcd", 2379
ETCD_ENDPOINT = f"etcd-service:{ETCD_PORT}"  # the name that job files of pytorch/elastic have always used
PLATFORM, PLATFORM_SCHEMA = "ebb-platform", "1"
DIGITS = "/mnt/data/digits"
IMAGE_OF_CONTROLLER = "ebb-controller"  # what workloads/manifests/controller.yaml says in place of an image
NOBODY = 1000  # the images' user; shared volumes are its own

Resources = list[pulumi.Resource]


def namespaces(cluster: Cluster, machines: Sequence[pulumi.Resource]) -> dict[str, pulumi.Resource]:
    """The platform's and the jobs' namespace.

    They depend on the machines for the way down: a namespace is gone when its last pod has ended, and for that a pod needs its
    machine.
    """
    levels = {SYSTEM: "restricted", JOBS: "baseline"}
    return {
        name: core.v1.Namespace(
            f"namespace-{name}",
            metadata={"name": name, "labels": _pod_security(level)},
            opts=cluster.options(depends_on=machines),
        )
        for name, level in levels.items()
    }


def _pod_security(enforced: str) -> dict[str, str]:
    prefix = "pod-security.kubernetes.io"
    return {f"{prefix}/enforce": enforced, f"{prefix}/warn": "restricted", f"{prefix}/audit": "restricted"}


def priorities(cluster: Cluster) -> dict[str, pulumi.Resource]:
    """The platform's pods go before jobs; jobs have one class, which is what pods get that name none."""
    ours = scheduling.v1.PriorityClass(
        f"priority-{PLATFORM_PRIORITY}",
        metadata={"name": PLATFORM_PRIORITY},
        value=1_000_000,
        description="etcd, the controller and data preparation: jobs cannot run without them.",
        opts=cluster.options(),
    )
    jobs = scheduling.v1.PriorityClass(
        f"priority-{JOB_PRIORITY}",
        metadata={"name": JOB_PRIORITY},
        value=1000,
        global_default=True,
        description="Elastic jobs.",
        opts=cluster.options(),
    )
    return {PLATFORM_PRIORITY: ours, JOB_PRIORITY: jobs}


def claims(cluster: Cluster, storage: Storage, spaces: dict[str, pulumi.Resource]) -> Resources:
    """The jobs' shared volumes."""
    return [claim(cluster, volume, JOBS, spaces[JOBS]) for volume in storage.jobs]


def claim(cluster: Cluster, volume: Volume, namespace: str, space: pulumi.Resource) -> pulumi.Resource:
    """A claim for one volume. Every claim has a fixed name, so that data comes back when the stack does."""
    spec: PersistentVolumeClaimSpecArgsDict = {
        "access_modes": [volume.access_mode],
        "storage_class_name": volume.storage_class,
        "resources": {"requests": {"storage": f"{volume.size_gib}Gi"}},
    }
    if volume.volume_name is not None:
        spec["volume_name"] = volume.volume_name
    return core.v1.PersistentVolumeClaim(
        f"claim-{volume.claim}",
        metadata={"name": volume.claim, "namespace": namespace},
        spec=spec,
        opts=cluster.options(depends_on=[space]),
    )


def etcd(
    cluster: Cluster, storage: Storage, image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]
) -> Resources:
    """The rendezvous store: one member, its data on a volume. `needs`: the namespaces, the manager group, the priorities."""
    store = claim(cluster, storage.etcd, SYSTEM, needs[0])
    labels = {"app.kubernetes.io/name": ETCD}
    service = core.v1.Service(
        "service-etcd",
        metadata={"name": ETCD, "namespace": SYSTEM, "labels": labels},
        spec={"selector": labels, "ports": [{"name": "client", "port": ETCD_PORT, "target_port": ETCD_PORT}]},
        opts=cluster.options(depends_on=needs),
    )
    alias = core.v1.Service(
        "service-etcd-service",
        metadata={"name": "etcd-service", "namespace": JOBS},
        spec={"type": "ExternalName", "external_name": f"{ETCD}.{SYSTEM}.svc.cluster.local"},
        opts=cluster.options(depends_on=needs),
    )
    members = StatefulSet(
        "etcd",
        metadata={"name": ETCD, "namespace": SYSTEM, "labels": labels},
        spec={
            "replicas": 1,
            "service_name": ETCD,
            "selector": {"match_labels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _etcd_pod(storage.etcd, image, manager)},
        },
        opts=cluster.options(depends_on=[*needs, store]),
    )
    return [members, service, alias]


def _etcd_pod(store: Volume, image: pulumi.Input[str], manager: NodeGroup) -> PodSpecArgsDict:
    command = [
        "/usr/local/bin/etcd",
        "--name=ebb",
        f"--data-dir={store.mount_path}/data",  # a folder below the mount: etcd wants it for itself alone (0700)
        f"--listen-client-urls=http://0.0.0.0:{ETCD_PORT}",
        f"--advertise-client-urls=http://{ETCD}.{SYSTEM}.svc.cluster.local:{ETCD_PORT}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--enable-v2=true",  # torch's `etcd` rendezvous speaks v2, which etcd 3.6 no longer has
        "--auto-compaction-retention=1h",
    ]
    health: ProbeArgsDict = {"http_get": {"path": "/health", "port": ETCD_PORT}, "timeout_seconds": 5}
    container: ContainerArgsDict = {
        "name": ETCD,
        "image": image,
        "image_pull_policy": "IfNotPresent",
        "command": command,
        "ports": [{"name": "client", "container_port": ETCD_PORT}],
        "readiness_probe": {**health, "period_seconds": 2, "failure_threshold": 3},
        "liveness_probe": {**health, "period_seconds": 10, "failure_threshold": 6, "initial_delay_seconds": 20},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "volume_mounts": [{"name": "data", "mount_path": store.mount_path}],
        "security_context": container_security(),
    }
    volumes: list[VolumeArgsDict] = [{"name": "data", "persistent_volume_claim": {"claim_name": store.claim}}]
    return pod(container, volumes, manager, restart_policy="Always")


def pod(
    container: ContainerArgsDict, volumes: list[VolumeArgsDict], manager: NodeGroup, *, restart_policy: str
) -> PodSpecArgsDict:
    """The spec of a pod of the platform: on the manager machine, as nobody, without a token for the API server."""
    return {
        "containers": [container],
        "volumes": volumes,
        "node_selector": {LABEL_NODE_GROUP: manager.name},
        "priority_class_name": PLATFORM_PRIORITY,
        "automount_service_account_token": False,
        "enable_service_links": False,
        "security_context": {
            "run_as_non_root": True,
            "run_as_user": NOBODY,
            "run_as_group": NOBODY,
            "fs_group": NOBODY,
            "seccomp_profile": {"type": "RuntimeDefault"},
        },
        "restart_policy": restart_policy,
        "termination_grace_period_seconds": 10,
    }


def container_security() -> SecurityContextArgsDict:
    """What Pod Security `restricted` asks of a container, and a root file system that nobody can write."""
    return {
        "allow_privilege_escalation": False,
        "read_only_root_filesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def platform(
    cluster: Cluster, storage: Storage, images: Images, groups: Sequence[NodeGroup], spaces: dict[str, pulumi.Resource]
) -> pulumi.Resource:
    """ConfigMap `ebb-platform`: all that the CLI and the controller know about the stack (workloads/platform.py reads it)."""
    facts = {
        "cloud": cluster.name,
        "region": cluster.region,
        "stack": pulumi.get_stack(),
        "trainerImage": images.trainer,
        "jobsNamespace": JOBS,
        "etcdEndpoint": ETCD_ENDPOINT,
        "volumes": [volume.facts() for volume in storage.jobs],
        "nodeGroups": [group.facts() for group in groups],
        "dashboards": {},
    }
    return core.v1.ConfigMap(
        PLATFORM,
        metadata={"name": PLATFORM, "namespace": SYSTEM},
        data={"schema": PLATFORM_SCHEMA, "platform.json": pulumi.Output.json_dumps(facts, indent=1)},
        opts=cluster.options(depends_on=[spaces[SYSTEM]]),
    )


def controller(cluster: Cluster, image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]) -> Resources:
    """The kind ElasticJob and the program that acts on it. `needs`: claims, etcd, ebb-platform, the manager group.

    The CRD depends on the claims for the way down: it takes all jobs along, also those that people submitted, and a claim is gone
    only when no pod holds it any more.
    """
    kind = manifests.declare(manifests.read("crd.yaml"), cluster.options(depends_on=needs))
    rights = manifests.declare(manifests.read("rbac.yaml"), cluster.options(depends_on=needs))
    place = {"nodeSelector": {LABEL_NODE_GROUP: manager.name}, "priorityClassName": PLATFORM_PRIORITY}
    program = manifests.declare(
        manifests.placed(manifests.read("controller.yaml"), place),
        cluster.options(depends_on=[*needs, *kind, *rights]),
        images={IMAGE_OF_CONTROLLER: image},
    )
    return [*program, *rights, *kind]


def digits(
    cluster: Cluster, storage: Storage, image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]
) -> pulumi.Resource:
    """Writes scikit-learn's digits as an image folder. The Job stays when it has finished: later updates leave it alone."""
    container: ContainerArgsDict = {
        "name": "prepare",
        "image": image,
        "image_pull_policy": "IfNotPresent",
        "command": ["tini", "--", "python3", "-m", "trainer.digits", DIGITS],
        "env": [{"name": "TMPDIR", "value": "/tmp"}],  # noqa: S108 - an emptyDir of this pod
        "resources": {"requests": {"cpu": "200m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        "volume_mounts": [{"name": "tmp", "mount_path": "/tmp"}, *map(_mount, storage.jobs)],  # noqa: S108
        "security_context": container_security(),
    }
    volumes: list[VolumeArgsDict] = [{"name": "tmp", "empty_dir": {}}, *map(_claimed, storage.jobs)]
    return batch.v1.Job(
        "prepare-digits",
        metadata={"name": "prepare-digits", "namespace": JOBS},
        spec={
            "backoff_limit": 3,
            "template": {
                "metadata": {"labels": {"app.kubernetes.io/name": "prepare-digits"}},
                "spec": pod(container, volumes, manager, restart_policy="Never"),
            },
        },
        opts=cluster.options(depends_on=needs),
    )


def _mount(volume: Volume) -> VolumeMountArgsDict:
    return {"name": volume.name, "mount_path": volume.mount_path, "read_only": volume.read_only}


def _claimed(volume: Volume) -> VolumeArgsDict:
    return {"name": volume.name, "persistent_volume_claim": {"claim_name": volume.claim, "read_only": volume.read_only}}


def jobs(cluster: Cluster, listed: Sequence[dict[str, Any]], needs: Sequence[pulumi.Resource]) -> Resources:
    """The jobs that the stack's file lists. `needs`: the controller, so that it still runs when they are deleted."""
    return [
        CustomResource(
            f"job-{job['metadata']['name']}",
            api_version=JOB_API,
            kind=JOB_KIND,
            metadata={"namespace": JOBS, **job["metadata"]},
            spec=job["spec"],
            opts=cluster.options(depends_on=needs),
        )
        for job in listed
    ]
