"""The claims that jobs mount, the Job that makes their folders, and the data sets that the stack puts on them.

The Job that makes folders runs as root, which namespace `elastic-job` allows (Pod Security `baseline`), with three capabilities
and nothing else. It may run again at any time: folders that are right stay as they are, and it never looks at what is in them.

A data set is written by a Job that stays when it has finished; for Pulumi that Job is done when its data is there, so what
depends on it waits for the data. The programs (trainer/digits.py, trainer/datasets.py) see finished work and do nothing: another
trainer image replaces the Jobs, and no data moves. A data set that leaves the stack's file stays on the volume: removing data is
for people.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import pulumi
from pulumi_kubernetes import batch, core
from pulumi_kubernetes.core.v1 import ContainerArgsDict, PersistentVolumeClaimSpecArgsDict, PodSpecArgsDict, VolumeArgsDict
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict

from workloads.cluster import (
    JOB_PRIORITY,
    JOBS,
    NAME_LABEL,
    NOBODY,
    TEAMS,
    Cluster,
    NodeGroup,
    Resources,
    Storage,
    Volume,
    mounted_by_machines,
    team_folder,
)
from workloads.pods import claimed, container_security, mount, pod

PREPARE = "prepare-storage"
FOLDERS = ("data", "output")  # volumes of these names are folders of Storage.root
MODE = "0775"
DATA = "data"  # the volume's name
# ImageNet's 150 GB at 50 MB/s take an hour, and its 1.3 million files two more on a network file system.
LONGEST = pulumi.CustomTimeouts(create="12h", update="12h")


class Archive(Protocol):
    """An archive to fetch, to check and to unpack."""

    @property
    def name(self) -> str: ...

    @property
    def url(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def sha256(self) -> str | None: ...

    @property
    def md5(self) -> str | None: ...


def claims(
    cluster: Cluster, storage: Storage, spaces: Mapping[str, pulumi.Resource], needs: Sequence[pulumi.Resource] = ()
) -> Resources:
    """The jobs' shared volumes, and the file system's root for job files that mount it whole. `needs`: the namespaces' limits,
    and what workers use to their end: a claim is gone when no pod holds it any more, so it goes before that."""
    made = [claim(cluster, volume, JOBS, [spaces[JOBS], *needs]) for volume in (*storage.jobs, storage.root)]
    for team, volumes in storage.teams.items():
        name = f"{TEAMS}{team}"
        # Of a team that leaves a stack nothing else ends the jobs, whose pods would hold the claim: it goes with the namespace.
        made += [claim(cluster, one, name, [spaces[name], *needs], deleted_with=spaces[name]) for one in volumes]
    return made


def claim(
    cluster: Cluster,
    volume: Volume,
    namespace: str,
    needs: Sequence[pulumi.Resource],
    *,
    deleted_with: pulumi.Resource | None = None,
) -> pulumi.Resource:
    """A claim for one volume. Every claim has a fixed name, so that data comes back when the stack does."""
    spec: PersistentVolumeClaimSpecArgsDict = {
        "access_modes": [volume.access_mode],
        "storage_class_name": volume.storage_class,
        "resources": {"requests": {"storage": f"{volume.size_gib}Gi"}},
    }
    if volume.volume_name is not None:
        spec["volume_name"] = volume.volume_name
    metadata: ObjectMetaArgsDict = {"name": volume.claim, "namespace": namespace}
    if volume.annotations:
        metadata["annotations"] = dict(volume.annotations)
    return core.v1.PersistentVolumeClaim(
        f"claim-{namespace}-{volume.claim}" if namespace.startswith(TEAMS) else f"claim-{volume.claim}",
        metadata=metadata,
        spec=spec,
        opts=pulumi.ResourceOptions.merge(cluster.options(depends_on=needs), pulumi.ResourceOptions(deleted_with=deleted_with)),
    )


def prepare(
    cluster: Cluster, storage: Storage, image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]
) -> Resources:
    """Makes the folders for data and output, owned by the images' user. `image`: any with coreutils. `needs`: the claims and what
    pods of the platform need. When it has finished it stays, and later updates leave it alone unless it has changed."""
    mounted = [storage.root, *_own_volumes(storage)]
    job = batch.v1.Job(
        PREPARE,
        metadata={"name": PREPARE, "namespace": JOBS, "labels": {NAME_LABEL: PREPARE}},
        spec={
            "backoff_limit": 6,  # the name of a new mount target takes some 90 s to resolve
            "template": {
                # The claims' annotations name the file systems: on another one the work must be done again.
                "metadata": {"labels": {NAME_LABEL: PREPARE}, "annotations": _file_systems(mounted)},
                "spec": _root_pod(_prepare_container(storage, image, mounted), mounted, manager),
            },
        },
        opts=cluster.options(depends_on=needs),
    )
    return [job]


def _own_volumes(storage: Storage) -> list[Volume]:
    """Those that are no folder of the root, but file systems whose own root the jobs write to."""
    return [volume for volume in storage.jobs if volume.name not in FOLDERS and not volume.read_only]


def _file_systems(mounted: Sequence[Volume]) -> dict[str, pulumi.Input[str]]:
    return {f"claim.ebb.dev/{volume.claim}": pulumi.Output.json_dumps(dict(volume.annotations)) for volume in mounted}


def _prepare_container(storage: Storage, image: pulumi.Input[str], mounted: Sequence[Volume]) -> ContainerArgsDict:
    folders = [f"{storage.root.mount_path}/{name}" for name in FOLDERS]
    of_teams = [f"{storage.root.mount_path}/{team_folder(team, name)}" for team in storage.teams for name in FOLDERS]
    # Each job makes its folder in one for its namespace: made by the first job, it would be closed to workers of another user.
    of_jobs = [f"{storage.root.mount_path}/output/{JOBS}"]
    of_jobs += [f"{storage.root.mount_path}/{team_folder(team, 'output')}/{TEAMS}{team}" for team in storage.teams]
    paths = [*folders, *(volume.mount_path for volume in _own_volumes(storage)), *of_teams, *of_jobs]
    return {
        "name": "prepare",
        "image": image,
        "image_pull_policy": "IfNotPresent",
        # install makes what is missing, and sets owner and mode of what is there; no shell is needed for it.
        "command": ["install", "--directory", f"--owner={NOBODY}", f"--group={NOBODY}", f"--mode={MODE}", "--", *paths],
        "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "volume_mounts": [mount(volume) for volume in mounted],
        "security_context": {
            **container_security(),
            # For folders that belong to somebody else by now. All three are in `baseline`.
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER"]},
        },
    }


def _root_pod(container: ContainerArgsDict, mounted: Sequence[Volume], manager: NodeGroup) -> PodSpecArgsDict:
    spec = pod(container, [claimed(volume) for volume in mounted], manager, restart_policy="Never", priority=JOB_PRIORITY)
    spec["security_context"] = {
        "run_as_user": 0,  # the root of a new file system is root's alone
        "run_as_group": 0,
        "seccomp_profile": {"type": "RuntimeDefault"},
    }
    return spec


# ------------------------------------------------------------------------------------------------------------ data sets


def datasets(
    cluster: Cluster,
    storage: Storage,
    image: pulumi.Input[str],
    manager: NodeGroup,
    needs: Sequence[pulumi.Resource],
    *,
    digits: bool,
    listed: Sequence[Archive],
) -> Resources:
    """One Job for each data set: the archives that the stack's file lists, and scikit-learn's digits, which need no download. All
    jobs of the stack depend on all of them. `needs`: claims with their folders."""
    data = next(volume for volume in storage.jobs if volume.name == DATA)
    made: Resources = []
    if digits:  # with all volumes: on some clouds one of them carries scikit-learn
        job = _Preparation(cluster=cluster, image=image, manager=manager, volumes=mounted_by_machines(storage.jobs))
        made.append(job.declare("prepare-digits", ["trainer.digits", f"{data.mount_path}/digits"], needs))
    job = _Preparation(cluster=cluster, image=image, manager=manager, volumes=[data])
    made += [job.declare(f"dataset-{one.name}", ["trainer.datasets", *_arguments(one, data)], needs) for one in listed]
    return made


def _arguments(dataset: Archive, data: Volume) -> list[str]:
    checksum = ["--sha256", dataset.sha256] if dataset.sha256 else ["--md5", dataset.md5 or ""]
    return [f"{data.mount_path}/{dataset.name}", "--url", dataset.url, "--kind", dataset.kind, *checksum]


class _Preparation:
    """The common part of the Jobs: where they run, from which image, with which volumes."""

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
