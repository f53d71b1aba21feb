"""A real API server that holds as many jobs as a group has after some weeks, as the controller leaves them.

    async with jobs_on_a_plane(folder, 500) as plane: plane.kubeconfig

No controller runs: nothing changes while it is looked at.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from benchmarks.controller.plane import Plane
from benchmarks.controller.processes import eventually
from devcluster.settings import CHECKOUT
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, KubeError, Object, Resource

JOBS_NAMESPACE, SYSTEM = "elastic-job", "ebb-system"
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
CRD = CHECKOUT / "workloads" / "manifests" / "crd.yaml"
AT_ONCE = 32
SERVED_SECONDS = 60.0
ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")
IMAGE = "registry.example/ebb/trainer:1"
AT = "2026-11-21T12:00:00Z"


@asynccontextmanager
async def jobs_on_a_plane(folder: Path, count: int) -> AsyncIterator[Plane]:
    """Raises BenchmarkError, BoxError, KubeError."""
    async with Plane.started(folder) as plane:
        await plane.kube.create(CRDS, None, yaml.safe_load(CRD.read_text()))
        for name in (JOBS_NAMESPACE, SYSTEM):
            await plane.namespace(name)
        await eventually(lambda: _served(plane), SERVED_SECONDS, lambda: "the kind ElasticJob is not served")
        await plane.kube.create(CONFIG_MAPS, SYSTEM, platform_map())
        free = asyncio.Semaphore(AT_ONCE)

        async def make(index: int) -> None:
            async with free:
                made = await plane.kube.create(ELASTIC_JOBS, JOBS_NAMESPACE, job(index))
                await plane.kube.replace(
                    ELASTIC_JOBS, JOBS_NAMESPACE, made["metadata"]["name"], {**made, "status": status(index)}, "status"
                )

        await asyncio.gather(*map(make, range(count)))
        yield plane


async def _served(plane: Plane) -> bool:
    try:
        await plane.kube.list(ELASTIC_JOBS, JOBS_NAMESPACE)
    except KubeError:
        return False
    return True


def job(index: int) -> Object:
    """One of `ebb submit`, in size and shape."""
    limits = {"cpu": "3400m", "memory": "13Gi", "nvidia.com/gpu": "1"}
    environment = [{"name": f"SETTING_{number}", "value": "x" * 20} for number in range(8)]
    container = {
        "name": "elasticjob-worker", "image": IMAGE, "resources": {"limits": limits, "requests": limits},
        "args": ["-m", "trainer", "--data", "/mnt/data/imagenet", "--epochs", "90"], "env": environment,
        "volumeMounts": [{"name": name, "mountPath": f"/mnt/{name}"} for name in ("data", "output")],
    }  # fmt: skip
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": f"ebb-{name}"}} for name in ("data", "output")]
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    template = {"spec": {"containers": [container], "volumes": volumes, "tolerations": tolerations}}
    return {
        "apiVersion": "elastic.pytorch.org/v1alpha1", "kind": "ElasticJob",
        "metadata": {"name": f"imagenet-lr-{index:04}", "labels": {"ebb.dev/user": f"user-{index % 7}"}},
        "spec": {
            "rdzvEndpoint": "etcd-service:2379", "minReplicas": 1, "maxReplicas": 8,
            "placement": {"gpuType": "T4", "zone": "single"},
            "replicaSpecs": {"Worker": {"replicas": 4, "template": template}},
        },
    }  # fmt: skip


def status(index: int) -> Object:
    """Of a job that has run for a day: a full history, four workers."""
    condition = {"status": "True", "lastUpdateTime": AT, "lastTransitionTime": AT}
    conditions = [
        {**condition, "type": "Created", "reason": "ElasticJobCreated", "message": "The controller took the job on: 4 workers."},
        {**condition, "type": "Running", "reason": "ElasticJobRunning", "message": "4 of 4 workers run."},
    ]
    zone = ZONES[index % len(ZONES)]
    history = [
        {"at": AT, "what": "reclaimed", "worker": number % 4, "node": f"spot-t4-{zone}-{number:05}", "cause": "ReclaimNotice"}
        for number in range(20)
    ]
    members = [{"index": number, "uid": f"{index:08}-0000-0000-0000-{number:012}", "node": f"n{number}"} for number in range(4)]
    return {
        "state": "Running", "ready": "4/4", "conditions": conditions, "history": history, "members": members,
        "replicaStatuses": {"Worker": {"active": 4}}, "startTime": AT, "replicas": 4, "reclaims": 20 + index % 5,
        "placement": {"zone": zone, "capacityType": "spot", "gpuType": "T4", "since": AT},
        "progress": {
            "step": 1000 + index, "totalSteps": 450000, "epoch": 3, "loss": 2.31, "worldSize": 4, "generation": 21,
            "samplesPerSecond": 1480.5, "at": AT,
        },
        "cost": {"usdSpent": 12.5, "usdPerHour": 0.63, "usdOnDemand": 41.0, "usdOnDemandPerHour": 2.1, "at": AT},
    }  # fmt: skip


def platform_map() -> Object:
    """The least that `ebb` reads of a stack."""
    group: dict[str, Any] = {
        "name": "spot-t4", "zone": ZONES[0], "instanceType": "g4dn.xlarge", "gpuType": "T4", "gpusPerNode": 1, "cpu": 4,
        "memoryGiB": 16, "capacityType": "spot", "min": 0, "max": 64, "taints": [], "labels": {}, "pricePerHourOnDemand": 0.526,
        "spotDiscount": 0.7, "noticeSeconds": 120,
    }  # fmt: skip
    facts = {
        "cloud": "local", "region": "local", "stack": "bench", "trainerImage": IMAGE, "jobsNamespace": JOBS_NAMESPACE,
        "etcdEndpoint": "etcd-service:2379", "volumes": [], "nodeGroups": [group], "dashboards": {},
    }  # fmt: skip
    return {"metadata": {"name": "ebb-platform"}, "data": {"schema": "1", "platform.json": json.dumps(facts)}}
