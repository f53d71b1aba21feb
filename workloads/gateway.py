"""The gateway to the jobs' volumes, from workloads/manifests/gateway.yaml: this gives it the volumes and its machine.

It mounts what every worker mounts, where a worker sees it: people name files by the paths that their programs use.
"""

from collections.abc import Sequence

import pulumi

from infra import manifests
from infra.cloud import LABEL_NODE_GROUP, Cluster, NodeGroup, Storage, Volume
from workloads.controller import IMAGE
from workloads.names import Resources


def gateway(
    cluster: Cluster, storage: Storage, image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]
) -> Resources:
    """`image`: the controller's. `needs`: the claims with their folders, and what all pods of the platform need. It goes before
    the claims on the way down, as a claim is gone when no pod holds it any more."""
    (document,) = manifests.read("gateway.yaml")
    (container,) = document["spec"]["template"]["spec"]["containers"]
    place = {
        "nodeSelector": {LABEL_NODE_GROUP: manager.name},
        "containers": [{**container, **_shown(storage.jobs)}],
        "volumes": [_claimed(volume) for volume in storage.jobs],
    }
    return manifests.declare(manifests.placed([document], place), cluster.options(depends_on=needs), images={IMAGE: image})


def _shown(volumes: Sequence[Volume]) -> manifests.Document:
    """The volumes as its arguments and its mounts."""
    flags = [("--read-only" if volume.read_only else "--volume", volume) for volume in volumes]
    return {
        "args": [f"{flag}={volume.name}={volume.mount_path}" for flag, volume in flags],
        "volumeMounts": [{"name": volume.name, "mountPath": volume.mount_path, **_read_only(volume)} for volume in volumes],
    }


def _claimed(volume: Volume) -> manifests.Document:
    return {"name": volume.name, "persistentVolumeClaim": {"claimName": volume.claim, **_read_only(volume)}}


def _read_only(volume: Volume) -> manifests.Document:
    return {"readOnly": True} if volume.read_only else {}
