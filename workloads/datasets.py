"""The data sets that the stack puts on the data volume: a Job for each.

The Job stays when it has finished; for Pulumi it is done when its data is there, so what depends on it waits for the data. The
programs (trainer/digits.py, trainer/datasets.py) see finished work and do nothing: another trainer image replaces the Jobs, and
no data moves. A data set that leaves the stack's file stays on the volume: removing data is for people.

Archives in a bucket are copied first, by `python -m ebb.buckets` in a container of the same pod, with the identity that the
cloud gives to copies of buckets or with credentials from secrets.

The pods run on machines without GPUs beside the manager's where the stack has spot and on-demand ones in zones that mount the
data: spot machines first, and on-demand ones when the autoscaler cannot have those. A stack without both prepares on the manager
machine: spot machines alone may be sold out for days. A reclaim is no failure, and the next pod goes on.

A volume that shows a bucket's objects and fetches them when they are first read has its folders loaded by Jobs of the same kind:
machines with GPUs would wait for the bucket in the first epoch.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import pulumi
from pulumi_kubernetes import batch
from pulumi_kubernetes.core.v1 import ContainerArgsDict, EnvVarArgsDict, PodSpecArgsDict, VolumeArgsDict

from ebb.api.contract import EXIT_COPY_REFUSED, LABEL_COPY
from workloads.cluster import (
    COPY_ACCOUNT,
    JOB_PRIORITY,
    JOBS,
    LABEL_CAPACITY,
    NAME_LABEL,
    ON_DEMAND,
    SPOT,
    Cluster,
    CopyIdentity,
    Images,
    NodeGroup,
    Resources,
    Storage,
    Volume,
    mounted_by_machines,
)
from workloads.pods import claimed, container_security, mount, pod

DATA = "data"  # the volume's name
IMAGENET = "imagenet"
COPY, LOAD = "copy", "load"  # the containers that copy a bucket, and that load a folder
SECRET_PREFIX, SECRET_KEY = "ebb-secret-", "value"  # of what `ebb secret set` makes (ebb/client/secrets/uses.py)
# ImageNet's 150 GB at 50 MB/s take an hour, and its 1.3 million files two more on a network file system.
LONGEST = pulumi.CustomTimeouts(create="12h", update="12h")


class Archive(Protocol):
    """An archive to fetch, to check and to unpack; of ImageNet the folder with its three."""

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

    @property
    def secrets(self) -> Sequence[str]: ...

    @property
    def environment(self) -> Mapping[str, str]: ...


def datasets(
    cluster: Cluster,
    storage: Storage,
    images: Images,
    machines: Sequence[NodeGroup],
    needs: Sequence[pulumi.Resource],
    *,
    digits: bool,
    listed: Sequence[Archive],
) -> Resources:
    """One Job for each data set: the archives that the stack's file lists, and scikit-learn's digits, which need no download. And
    one for each folder that is to be loaded. All jobs of the stack depend on all of them. `machines`: the manager's group, then
    those for jobs. `needs`: claims with their folders, and what copies of buckets need."""
    data = next(volume for volume in storage.jobs if volume.name == DATA)
    volumes = mounted_by_machines(storage.jobs)
    declare = _Preparation(cluster, images, _machines(machines, data), needs)
    made: Resources = []
    if digits:  # with all volumes: on some clouds one of them carries scikit-learn
        command = ["trainer.digits", f"{data.mount_path}/digits"]
        made.append(declare.job("prepare-digits", command, volumes))
    for one in listed:
        carriers = [volume for volume in volumes if volume.read_only] if one.kind == IMAGENET else []  # of scipy, as above
        copied = _copy(one, data, images, storage.copies) if _is_in_bucket(one) else None
        account = COPY_ACCOUNT if copied and storage.copies else ""
        arguments = ["trainer.datasets", *_arguments(one, data)]
        made.append(declare.job(f"dataset-{one.name}", arguments, [data, *carriers], copied, account=account))
    for volume in storage.jobs:
        load = _Preparation(cluster, images, _machines(machines, volume), needs)
        for number, folder in enumerate(volume.preload, 1):
            arguments = ["ebb.buckets.preload", f"{volume.mount_path}/{folder}"]
            made.append(load.job(f"load-{volume.name}-{number}", arguments, [volume], program=LOAD))
    return made


def _machines(groups: Sequence[NodeGroup], data: Volume) -> list[NodeGroup]:
    """The groups whose machines prepare data. Which of them gets a new machine is the autoscaler's choice: it tries spot first,
    and a group that gives none for a while is passed over (its order is in `Autoscaler.priorities`, or the cloud's own)."""
    manager, *others = groups
    plain = [one for one in others if one.capacity_type in (SPOT, ON_DEMAND) and not one.instance.gpus and one.max]
    fitting = [one for one in plain if data.zone in ("", one.zone)]
    return fitting if {one.capacity_type for one in fitting} == {SPOT, ON_DEMAND} else [manager]


def _is_in_bucket(dataset: Archive) -> bool:
    return not dataset.url.startswith("https://")


def _arguments(dataset: Archive, data: Volume) -> list[str]:
    checksum = ["--sha256", dataset.sha256] if dataset.sha256 else ["--md5", dataset.md5] if dataset.md5 else []
    return [f"{data.mount_path}/{dataset.name}", "--url", dataset.url, "--kind", dataset.kind, *checksum]


def _copy(dataset: Archive, data: Volume, images: Images, identity: CopyIdentity | None) -> ContainerArgsDict:
    """The container that copies the archives to where trainer/datasets.py looks for them."""
    usual = dict(identity.environment) if identity else {}
    variables: list[EnvVarArgsDict] = [{"name": name, "value": value} for name, value in {**usual, **dataset.environment}.items()]
    variables += [
        {
            "name": name.upper().replace("-", "_"),
            "value_from": {"secret_key_ref": {"name": f"{SECRET_PREFIX}{name}", "key": SECRET_KEY}},
        }
        for name in dataset.secrets
    ]
    there = f"{data.mount_path}/{dataset.name}"
    command = ["ebb.buckets", dataset.url.rstrip("/"), f"{data.mount_path}/.preparing-{dataset.name}/source", "--unless", there]
    return {
        "name": COPY,
        "image": images.controller,
        "image_pull_policy": "IfNotPresent",
        "command": ["tini", "--", "python3", "-m", *command],
        "env": variables,
        "resources": {"requests": {"cpu": "200m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "volume_mounts": [mount(data)],
        "security_context": container_security(),
        "termination_message_policy": "FallbackToLogsOnError",
    }


class _Preparation:
    """The common part of the Jobs: where they run, from which image, and what they wait for."""

    def __init__(self, cluster: Cluster, images: Images, machines: Sequence[NodeGroup], needs: Sequence[pulumi.Resource]) -> None:
        self._cluster, self._images, self._machines, self._needs = cluster, images, machines, needs

    def job(
        self,
        name: str,
        module: Sequence[str],
        volumes: Sequence[Volume],
        copied: ContainerArgsDict | None = None,
        *,
        account: str = "",
        program: str = "prepare",
    ) -> pulumi.Resource:
        """Declare one. `copied`: a container that runs before; `program`: the container that runs the module."""
        container: ContainerArgsDict = {
            "name": program,
            "image": self._images.controller if program == LOAD else self._images.trainer,
            "image_pull_policy": "IfNotPresent",
            "command": ["tini", "--", "python3", "-m", *module],
            "env": [{"name": "TMPDIR", "value": "/tmp"}],  # noqa: S108 - an emptyDir of this pod
            "resources": {"requests": {"cpu": "200m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
            "volume_mounts": [{"name": "tmp", "mount_path": "/tmp"}, *map(mount, volumes)],  # noqa: S108
            "security_context": container_security(),
        }
        mounted: list[VolumeArgsDict] = [{"name": "tmp", "empty_dir": {}}, *map(claimed, volumes)]
        spec = pod(container, mounted, self._machines[0], restart_policy="Never", priority=JOB_PRIORITY)
        labels = {NAME_LABEL: name}
        rules: list[Any] = [{"action": "Ignore", "on_pod_conditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        if copied:
            spec["init_containers"] = [copied]
            if account:
                spec["service_account_name"] = account
            labels[LABEL_COPY] = name  # the way to the credentials of the identity is open to pods with it
        if copied or program == LOAD:
            refusing = {"container_name": COPY if copied else LOAD, "operator": "In", "values": [EXIT_COPY_REFUSED]}
            rules = [{"action": "FailJob", "on_exit_codes": refusing}, *rules]
        options = self._cluster.options(depends_on=self._needs)
        return batch.v1.Job(
            name,
            metadata={"name": name, "namespace": JOBS},
            spec={
                "backoff_limit": 3,
                "pod_replacement_policy": "Failed",  # never two at once on the same folder
                "pod_failure_policy": {"rules": rules},
                "template": {"metadata": {"labels": labels}, "spec": _placed(spec, self._machines)},
            },
            opts=pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(custom_timeouts=LONGEST)),
        )


def _placed(spec: PodSpecArgsDict, groups: Sequence[NodeGroup]) -> PodSpecArgsDict:
    """On a machine of any of these groups."""
    if groups[0].is_manager:
        return spec
    terms = [
        {"match_expressions": [{"key": key, "operator": "In", "values": [value]} for key, value in one.node_selector.items()]}
        for one in groups
    ]
    affinity: Any = {
        "required_during_scheduling_ignored_during_execution": {"node_selector_terms": terms},
        "preferred_during_scheduling_ignored_during_execution": [  # among machines that are there already
            {"weight": 100, "preference": {"match_expressions": [{"key": LABEL_CAPACITY, "operator": "In", "values": [SPOT]}]}}
        ],
    }
    return {**spec, "node_selector": {}, "affinity": {"node_affinity": affinity}, "tolerations": _tolerations(groups)}


def _tolerations(groups: Iterable[NodeGroup]) -> list[Any]:
    taints = {tuple(sorted(taint.items())): taint for group in groups for taint in group.taints}
    return [{**taint, "operator": "Equal"} for taint in taints.values()]
