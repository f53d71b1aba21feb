"""The rendezvous store, and the CronJob that keeps its database small.

A database at its quota raises etcd's alarm NOSPACE and refuses writes until it is compacted, defragmented and told that all is
well: workloads/etcd/maintenance.py does so on a schedule and by hand, workloads/etcd/alarm.py tells people. No backup is made
here: what is in etcd is worth as much as the jobs that run, and the cloud takes snapshots of its volume.
"""

from collections.abc import Sequence

import pulumi
from pulumi_kubernetes import batch, core
from pulumi_kubernetes.apps.v1 import StatefulSet
from pulumi_kubernetes.core.v1 import ContainerArgsDict, PodSpecArgsDict, ProbeArgsDict, VolumeArgsDict

from infra.cloud import Cluster, NodeGroup, Storage, Volume
from infra.services.names import ETCD, ETCD_PORT, JOBS, NAME_LABEL, SYSTEM, Resources
from infra.services.pods import container_security, pod
from infra.services.storage import claim

MAINTENANCE = "etcd-maintenance"
MAINTENANCE_TIMES = "17 */6 * * *"  # compaction leaves holes, not work: four times a day is often
# A rendezvous writes kilobytes. On a volume of 2 GiB, the smallest one, there is room for the database, for the copy that a
# defragmentation writes beside it, and for the log (at most 5 files of 64 MB and two that are being made).
QUOTA_BYTES = 512 * 2**20
# An alarm is no reason to restart etcd, nor to hide it from its clients: reads still work, and so must the cure.
HEALTH = "/health?exclude=NOSPACE&exclude=CORRUPT"  # /livez and /readyz answer 404 while --enable-v2 is on (etcd 3.5.21)


def etcd(
    cluster: Cluster, storage: Storage, image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]
) -> Resources:
    """The rendezvous store: one member, its data on a volume. `needs`: the namespaces, the manager group, the priorities."""
    store = claim(cluster, storage.etcd, SYSTEM, needs)
    labels = {NAME_LABEL: ETCD}
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
    health: ProbeArgsDict = {"http_get": {"path": HEALTH, "port": ETCD_PORT}, "timeout_seconds": 5}
    container: ContainerArgsDict = {
        "name": ETCD,
        "image": image,
        "image_pull_policy": "IfNotPresent",
        "command": _command(store),
        "ports": [{"name": "client", "container_port": ETCD_PORT}],
        "readiness_probe": {**health, "period_seconds": 2, "failure_threshold": 3},
        "liveness_probe": {**health, "period_seconds": 10, "failure_threshold": 6, "initial_delay_seconds": 20},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "volume_mounts": [{"name": "data", "mount_path": store.mount_path}],
        "security_context": container_security(),
    }
    volumes: list[VolumeArgsDict] = [{"name": "data", "persistent_volume_claim": {"claim_name": store.claim}}]
    return pod(container, volumes, manager, restart_policy="Always")


def _command(store: Volume) -> list[str]:
    return [
        "/usr/local/bin/etcd",
        "--name=ebb",
        f"--data-dir={store.mount_path}/data",  # a folder below the mount: etcd wants it for itself alone (0700)
        f"--listen-client-urls=http://0.0.0.0:{ETCD_PORT}",
        f"--advertise-client-urls=http://{ETCD}.{SYSTEM}.svc.cluster.local:{ETCD_PORT}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--enable-v2=true",  # torch's `etcd` rendezvous speaks v2, which etcd 3.6 no longer has
        f"--quota-backend-bytes={QUOTA_BYTES}",
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=1h",  # nobody asks for what a job agreed on an hour ago
    ]


def etcd_maintenance(
    cluster: Cluster, image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]
) -> pulumi.Resource:
    """Defragments etcd now and then, and cures NOSPACE. `image`: the controller's; etcd's own has neither a shell nor etcdctl
    everywhere. `needs`: etcd and what it needs."""
    container: ContainerArgsDict = {
        "name": "maintenance",
        "image": image,
        "image_pull_policy": "IfNotPresent",
        "command": [
            *("tini", "--", "python3", "-m", "workloads.etcd.maintenance"),
            *(f"--etcd=http://{ETCD}:{ETCD_PORT}", f"--quota-bytes={QUOTA_BYTES}"),
        ],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "security_context": container_security(),
    }
    labels = {NAME_LABEL: MAINTENANCE}
    return batch.v1.CronJob(
        MAINTENANCE,
        metadata={"name": MAINTENANCE, "namespace": SYSTEM, "labels": labels},
        spec={
            "schedule": MAINTENANCE_TIMES,
            "concurrency_policy": "Forbid",
            "starting_deadline_seconds": 600,
            "successful_jobs_history_limit": 1,
            "failed_jobs_history_limit": 2,
            "job_template": {
                "metadata": {"labels": labels},
                "spec": {
                    "backoff_limit": 2,
                    "active_deadline_seconds": 600,
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": pod(container, [], manager, restart_policy="Never"),
                    },
                },
            },
        },
        opts=cluster.options(depends_on=needs),
    )
