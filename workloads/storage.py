"""The claims that jobs mount, and the Job that makes their folders.

The Job that makes folders runs as root, which namespace `elastic-job` allows (Pod Security `baseline`), with three capabilities
and nothing else. It may run again at any time: folders that are right stay as they are, and it never looks at what is in them.
"""

from collections.abc import Mapping, Sequence

import pulumi
from pulumi_kubernetes import batch, core
from pulumi_kubernetes.core.v1 import ContainerArgsDict, PersistentVolumeClaimSpecArgsDict, PodSpecArgsDict
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
    team_folder,
)
from workloads.pods import claimed, container_security, mount, pod

PREPARE = "prepare-storage"
FOLDERS = ("data", "output")  # volumes of these names are folders of Storage.root
MODE = "0775"


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
