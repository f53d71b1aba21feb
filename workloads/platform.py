"""Ebb in the cluster: the kind ElasticJob and its controller, the gateway, ConfigMap `ebb-platform`, the stack's own jobs.

Controller and gateway are the files of workloads/manifests; a stack adds its images, its volumes and the manager's node. The
gateway mounts what every worker mounts, where a worker sees it: people name files by the paths that their programs use.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi_kubernetes import core
from pulumi_kubernetes.apiextensions import CustomResource

from ebb.api.contract import GATEWAY_METRICS_PORT
from workloads import manifest
from workloads.cluster import (
    COPY_ACCOUNT,
    DEFAULT_IMAGE,
    ETCD_ENDPOINT,
    FLEX_START,
    FLEX_START_SECONDS,
    JOB_API,
    JOB_KIND,
    JOBS,
    LEGACY_ETCD_ENDPOINT,
    SYSTEM,
    TEAMS,
    Cluster,
    CopyIdentity,
    Images,
    NodeGroup,
    Resources,
    Storage,
    Volume,
    mounted_by_machines,
)
from workloads.namespaces import copies_policy, sidecars_policy
from workloads.teams import Team

IMAGE = "ebb-controller"  # what the files say in place of an image
PLATFORM, PLATFORM_SCHEMA = "ebb-platform", "1"
SECRETS_POLICY = "ebb-secrets"  # in policy.yaml
NOTIFICATIONS = "ebb-notifications"  # controller.yaml mounts it
TRAINER = "ebb-trainer"  # what job files say in place of the stack's trainer image; ebb-trainer:<name> is that of ebb:trainers
# An image that was built anew is for later jobs: the API server refuses another one while workers run.
RESEARCHERS_OWN = (
    "spec.replicaSpecs.Worker.replicas",
    "spec.suspend",
    "spec.replicaSpecs.Worker.template.spec.containers[*].image",
)


def secrets_policy(cluster: Cluster) -> Resources:
    """The policy on the Secrets that researchers write. It comes before the programs that write Secrets where jobs are: in an
    upgrade the older version's policy would judge them. The one right it asks for that comes later is a lead's, not theirs."""
    written = [one for one in manifest.read("policy.yaml") if one["metadata"]["name"] == SECRETS_POLICY]
    return manifest.declare(written, cluster.options())


def controller(
    cluster: Cluster,
    image: pulumi.Input[str],
    manager: NodeGroup,
    needs: Sequence[pulumi.Resource],
    *,
    owners: bool = False,
) -> Resources:
    """The kind ElasticJob and the program that acts on it. `needs`: claims, etcd, ebb-platform, the manager group. `owners`: the
    stack has teams, in which a job is its owner's.

    The CRD depends on the claims for the way down: it takes all jobs along, also those that people submitted, and a claim is gone
    only when no pod holds it any more.
    """
    kind = manifest.declare(manifest.read("crd.yaml"), cluster.options(depends_on=needs))
    rights = manifest.declare(manifest.read("rbac.yaml"), cluster.options(depends_on=needs))
    # It asks for a right that the controller has: the other way round an older one could not write records for a moment.
    others = [one for one in manifest.read("policy.yaml") if one["metadata"]["name"] != SECRETS_POLICY]
    written = [*others, *(manifest.read("owners.yaml") if owners else [])]
    policy = manifest.declare(written, cluster.options(depends_on=[*kind, *rights]))
    program = manifest.declare(
        manifest.placed(manifest.read("controller.yaml"), {"nodeSelector": manager.node_selector}),
        cluster.options(depends_on=[*needs, *kind, *rights]),
        images={IMAGE: image},
    )
    return [*program, *rights, *policy, *kind]


def notifications(cluster: Cluster, webhook: str, needs: Sequence[pulumi.Resource]) -> pulumi.Resource:
    """The Secret from which the controller reads where notifications go. `needs`: its namespace."""
    return core.v1.Secret(
        NOTIFICATIONS,
        metadata={"name": NOTIFICATIONS, "namespace": SYSTEM},
        string_data={"webhook": pulumi.Output.secret(webhook)},
        opts=cluster.options(depends_on=needs),
    )


def gateway(
    cluster: Cluster,
    storage: Storage,
    image: pulumi.Input[str],
    manager: NodeGroup,
    needs: Sequence[pulumi.Resource],
    *,
    metrics: bool = False,
) -> Resources:
    """One in each namespace of jobs: a claim is of one. `image`: the controller's. `needs`: the claims with their folders, and
    what all pods of the platform need. It goes before the claims on the way down, as a claim is gone when no pod holds it any
    more. `metrics`: it reports the room on the volumes."""
    (document,) = manifest.read("gateway.yaml")
    (container,) = document["spec"]["template"]["spec"]["containers"]
    options, made = cluster.options(depends_on=needs), list[pulumi.Resource]()
    for namespace, every in _by_namespace(storage).items():
        volumes = mounted_by_machines(every)
        place = {
            "nodeSelector": manager.node_selector,
            "containers": [{**container, **_mounted(volumes, metrics=metrics)}],
            "volumes": [_claimed(volume) for volume in volumes],
        }
        here = {**document, "metadata": {**document["metadata"], "namespace": namespace}}
        within = "" if namespace == JOBS else namespace
        made += manifest.declare(manifest.placed([here], place), options, images={IMAGE: image}, within=within)
    return made


def _by_namespace(storage: Storage) -> dict[str, Sequence[Volume]]:
    """The volumes of jobs in each namespace that has jobs."""
    return {JOBS: storage.jobs, **{f"{TEAMS}{team}": held for team, held in storage.teams.items()}}


def _mounted(volumes: Sequence[Volume], *, metrics: bool) -> manifest.Document:
    """The volumes as its arguments and its mounts."""
    port = [f"--metrics-port={GATEWAY_METRICS_PORT}"] if metrics else []
    flags = [("--read-only" if volume.read_only else "--volume", volume) for volume in volumes]
    return {
        "args": [*(f"{flag}={volume.name}={volume.mount_path}" for flag, volume in flags), *port],
        "volumeMounts": [{"name": volume.name, "mountPath": volume.mount_path, **_read_only(volume)} for volume in volumes],
    }


def _claimed(volume: Volume) -> manifest.Document:
    return {"name": volume.name, "persistentVolumeClaim": {"claimName": volume.claim, **_read_only(volume)}}


def _read_only(volume: Volume) -> manifest.Document:
    return {"readOnly": True} if volume.read_only else {}


def copy_identity(
    cluster: Cluster, storage: Storage, spaces: Mapping[str, pulumi.Resource], limits: Sequence[pulumi.Resource]
) -> Resources:
    """The ServiceAccounts of pods that copy buckets, without any right in Kubernetes, and their way to its credentials: one for
    jobs without a team, and one for each team that has buckets. `spaces`: namespaces by name; `limits`: theirs."""
    made: Resources = []
    for team, copies in {"": storage.copies, **storage.team_copies}.items():
        if copies is None:
            continue
        place, suffix = (f"{TEAMS}{team}", f"-{team}") if team else (JOBS, "")
        needs = [spaces[place], *limits]
        made.append(
            core.v1.ServiceAccount(
                f"{COPY_ACCOUNT}{suffix}",
                metadata={"name": COPY_ACCOUNT, "namespace": place, "annotations": dict(copies.annotations)},
                automount_service_account_token=False,
                opts=cluster.options(depends_on=[*needs, *copies.ready]),
            )
        )
        if copies.addresses:
            made.append(copies_policy(cluster, copies.addresses, needs, namespace=place, suffix=suffix))
    return made


def sidecar_ways(
    cluster: Cluster, storage: Storage, spaces: Mapping[str, pulumi.Resource], limits: Sequence[pulumi.Resource]
) -> Resources:
    """The way of workers to the credentials of what the cloud adds to them, in namespaces that have such volumes. Policies are of
    pods: the program beside it has that way, too. `spaces`: namespaces by name; `limits`: theirs."""
    made: Resources = []
    for namespace, volumes in _by_namespace(storage).items():
        addresses = dict.fromkeys(one for volume in volumes if volume.sidecar for one in volume.sidecar.addresses)
        if addresses:
            suffix = namespace.removeprefix(TEAMS) if namespace != JOBS else ""
            needs = [spaces[namespace], *limits]
            made.append(sidecars_policy(cluster, list(addresses), needs, namespace=namespace, suffix=suffix and f"-{suffix}"))
    return made


def facts(
    cluster: Cluster,
    storage: Storage,
    images: Images,
    groups: Sequence[NodeGroup],
    needs: Sequence[pulumi.Resource],
    *,
    teams: Sequence[Team] = (),
    dashboards: Mapping[str, pulumi.Input[str]] | None = None,
) -> pulumi.Resource:
    """ConfigMap `ebb-platform`: all that the CLI and the controller know about the stack (ebb/api/platform.py reads it). `needs`:
    its namespace, and the helpers: one that labels nodes takes the labels away when this is gone. `groups`: a manager's first."""
    known = {
        "cloud": cluster.name,
        "region": cluster.region,
        "stack": pulumi.get_stack(),
        "trainerImage": images.trainer,
        "launcherImage": images.controller,
        "jobsNamespace": JOBS,
        "etcdEndpoint": ETCD_ENDPOINT,
        **({"legacyEtcdEndpoint": LEGACY_ETCD_ENDPOINT} if images.legacy_etcd else {}),
        "volumes": [volume.facts() for volume in storage.jobs],
        # Beside the gateway, from its image: small, and on the machine already.
        "copies": {"image": images.controller, "selector": groups[0].node_selector, **_identity(storage)},
        "buckets": _buckets(storage.copies),
        "nodeGroups": [_group(group, images, cluster) for group in groups],
        "dashboards": dict(dashboards or {}),
        **({"teams": [_team(team, storage) for team in teams]} if teams else {}),
    }
    return core.v1.ConfigMap(
        PLATFORM,
        metadata={"name": PLATFORM, "namespace": SYSTEM},
        data={"schema": PLATFORM_SCHEMA, "platform.json": pulumi.Output.json_dumps(known, indent=1)},
        opts=cluster.options(depends_on=needs),
    )


def _identity(storage: Storage) -> Mapping[str, Any]:
    found = [one for one in (storage.copies, *storage.team_copies.values()) if one]
    account = {"account": COPY_ACCOUNT} if storage.copies else {}
    return {**account, "environment": dict(found[0].environment)} if found else {}


def _buckets(copies: CopyIdentity | None) -> list[Mapping[str, str]]:
    return [{"name": name, "url": url} for name, url in (copies.buckets if copies else {}).items()]


def _team(team: Team, storage: Storage) -> Mapping[str, Any]:
    copies = storage.team_copies.get(team.name)
    reads = {"buckets": _buckets(copies), "copyAccount": COPY_ACCOUNT} if copies else {}
    return {**team.facts(storage.teams.get(team.name, ())), **reads}


def _group(group: NodeGroup, images: Images, cluster: Cluster) -> Mapping[str, Any]:
    """A group's facts, with its trainer image where that is not the default: GPUs that the default's torch has no code for."""
    own = {} if group.image == DEFAULT_IMAGE else {"trainerImage": images.trainers[group.image]}
    waits = FLEX_START_SECONDS if group.capacity_type == FLEX_START else 0
    return {**group.facts(), **own, "provisionSeconds": cluster.provision_seconds + waits}


def jobs(cluster: Cluster, listed: Sequence[dict[str, Any]], images: Images, needs: Sequence[pulumi.Resource]) -> Resources:
    """The jobs that the stack's file lists: they start when the stack comes up, once, and are deleted with it. `needs`: the
    controller, so that it still runs when they are deleted.

    How many workers a job has, and whether it is suspended, is its researcher's business (`ebb scale`, `kubectl scale`): neither
    `up` nor `refresh` changes that. A finished job stays as an object (a time to live is refused in the stack's file: the job
    would vanish and come again), so a later `up` or `refresh` finds it and leaves it alone. A job that somebody deletes by hand
    is created and started anew by the next `up`, since the file lists it: to be rid of it, take it out of the list.
    """
    named = _names(images)
    return [
        CustomResource(
            f"job-{job['metadata']['name']}",
            api_version=JOB_API,
            kind=JOB_KIND,
            metadata={"namespace": JOBS, **job["metadata"]},
            spec=manifest.with_images(job["spec"], named),
            opts=pulumi.ResourceOptions.merge(
                cluster.options(depends_on=needs), pulumi.ResourceOptions(ignore_changes=list(RESEARCHERS_OWN))
            ),
        )
        for job in listed
    ]


def _names(images: Images) -> dict[str, pulumi.Input[str]]:
    return {TRAINER if name == DEFAULT_IMAGE else f"{TRAINER}:{name}": image for name, image in images.trainers.items()}
