"""Data sets on the jobs' volume, each written by a Job that stays when it has finished.

    datasets(cluster, storage, image, manager, stack, needs)

Those that the stack's file lists are fetched and checked; scikit-learn's digits need no download.
A Job is done, for Pulumi, when its data is there; so what depends on it waits for the data. The programs (trainer/digits.py,
trainer/datasets.py) see finished work and do nothing: another trainer image replaces the Jobs, and no data moves. A data set that
leaves the stack's file stays on the volume: removing data is for people.
"""

from collections.abc import Sequence

import pulumi
from pulumi_kubernetes import batch
from pulumi_kubernetes.core.v1 import ContainerArgsDict, VolumeArgsDict

from infra.cloud import Cluster, NodeGroup, Storage, Volume
from infra.config import Dataset, Stack
from workloads.names import JOB_PRIORITY, JOBS, NAME_LABEL, Resources
from workloads.pods import claimed, container_security, mount, pod

DATA = "data"  # the volume's name
# ImageNet's 150 GB at 50 MB/s take an hour, and its 1.3 million files two more on a network file system.
LONGEST = pulumi.CustomTimeouts(create="12h", update="12h")


def datasets(  # noqa: PLR0917 - called once, with the stack's own few things
    cluster: Cluster,
    storage: Storage,
    image: pulumi.Input[str],
    manager: NodeGroup,
    stack: Stack,
    needs: Sequence[pulumi.Resource],
) -> Resources:
    """One Job for each data set of the stack. All jobs of the stack depend on all of them. `needs`: claims with their folders."""
    data = next(volume for volume in storage.jobs if volume.name == DATA)
    made: Resources = []
    if stack.digits:  # with all volumes: on some clouds one of them carries scikit-learn
        job = _Preparation(cluster=cluster, image=image, manager=manager, volumes=storage.jobs)
        made.append(job.declare("prepare-digits", ["trainer.digits", f"{data.mount_path}/digits"], needs))
    job = _Preparation(cluster=cluster, image=image, manager=manager, volumes=[data])
    made += [job.declare(f"dataset-{one.name}", ["trainer.datasets", *_arguments(one, data)], needs) for one in stack.datasets]
    return made


def _arguments(dataset: Dataset, data: Volume) -> list[str]:
    checksum = ["--sha256", dataset.sha256] if dataset.sha256 else ["--md5", dataset.md5 or ""]
    return [f"{data.mount_path}/{dataset.name}", "--url", dataset.url, "--kind", dataset.kind, *checksum]


class _Preparation:
    """What the Jobs share: where they run, from which image, with which volumes."""

    def __init__(self, *, cluster: Cluster, image: pulumi.Input[str], manager: NodeGroup, volumes: Sequence[Volume]) -> None:
        self._cluster, self._image, self._manager, self._volumes = cluster, image, manager, volumes

    def declare(self, name: str, module: Sequence[str], needs: Sequence[pulumi.Resource]) -> pulumi.Resource:
        container: ContainerArgsDict = {
            "name": "prepare",
            "image": self._image,
            "image_pull_policy": "IfNotPresent",
            "command": ["tini", "--", "python3", "-m", *module],
            "env": [{"name": "TMPDIR", "value": "/tmp"}],  # noqa: S108 - an emptyDir of this pod
            "resources": {"requests": {"cpu": "200m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
            "volume_mounts": [{"name": "tmp", "mount_path": "/tmp"}, *map(mount, self._volumes)],  # noqa: S108
            "security_context": container_security(),
        }
        volumes: list[VolumeArgsDict] = [{"name": "tmp", "empty_dir": {}}, *map(claimed, self._volumes)]
        options = self._cluster.options(depends_on=needs)
        return batch.v1.Job(
            name,
            metadata={"name": name, "namespace": JOBS},
            spec={
                "backoff_limit": 3,
                "pod_replacement_policy": "Failed",  # never two at once on the same folder
                "template": {
                    "metadata": {"labels": {NAME_LABEL: name}},
                    "spec": pod(container, volumes, self._manager, restart_policy="Never", priority=JOB_PRIORITY),
                },
            },
            opts=pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(custom_timeouts=LONGEST)),
        )
