"""The rendezvous store, an older one where the stack wants it, and what keeps the database small, from workloads/manifests.

A database at its quota raises etcd's alarm NOSPACE and refuses writes until it is compacted, defragmented and told that all is
well: ebb/controller/etcd/maintenance.py does so on a schedule and by hand, ebb/controller/etcd/alarm.py tells people. No backup
is made here: what is in etcd is worth as much as the jobs that run, and the cloud takes snapshots of its volume.
"""

from collections.abc import Sequence

import pulumi

from infra import manifests
from infra.cloud import LABEL_NODE_GROUP, Cluster, Images, NodeGroup, Storage
from workloads.controller import IMAGE as CONTROLLER_IMAGE
from workloads.names import SYSTEM, Resources
from workloads.storage import claim

IMAGE, LEGACY_IMAGE = "ebb-etcd", "ebb-etcd-legacy"  # what the files say in place of an image
DATA = "data"  # what they call the volume


def etcd(
    cluster: Cluster, storage: Storage, image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]
) -> Resources:
    """The rendezvous store: one member, its data on a volume. `needs`: the namespaces, the manager group, the priorities."""
    store = claim(cluster, storage.etcd, SYSTEM, needs)  # in place of the file's: it comes back with its data when the stack does
    documents = manifests.placed(manifests.read("etcd.yaml"), _place(storage, manager))
    services = [document for document in documents if document["kind"] == "Service"]
    members = [document for document in documents if document["kind"] == "StatefulSet"]
    return [
        *manifests.declare(members, cluster.options(depends_on=[*needs, store]), images={IMAGE: image}),
        *manifests.declare(services, cluster.options(depends_on=needs)),
    ]


def legacy_etcd(
    cluster: Cluster, storage: Storage, images: Images, manager: NodeGroup, needs: Sequence[pulumi.Resource]
) -> Resources:
    """An etcd with the v2 API for torch's own rendezvous, if the stack wants one. `needs`: the other etcd and what it needs."""
    if images.legacy_etcd is None:
        return []
    documents = manifests.placed(manifests.read("etcd.yaml", manifests.LEGACY), _place(storage, manager))
    return manifests.declare(documents, cluster.options(depends_on=needs), images={LEGACY_IMAGE: images.legacy_etcd})


def _place(storage: Storage, manager: NodeGroup) -> manifests.Document:
    """On the machine that has the volume, with the stack's claim."""
    volumes = [{"name": DATA, "persistentVolumeClaim": {"claimName": storage.etcd.claim}}]
    return {"nodeSelector": {LABEL_NODE_GROUP: manager.name}, "volumes": volumes}


def etcd_maintenance(
    cluster: Cluster, image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]
) -> pulumi.Resource:
    """Defragments etcd now and then, and cures NOSPACE. `image`: the controller's. `needs`: etcd and what it needs."""
    place = {"nodeSelector": {LABEL_NODE_GROUP: manager.name}}
    documents = manifests.placed(manifests.read("maintenance.yaml"), place)
    (made,) = manifests.declare(documents, cluster.options(depends_on=needs), images={CONTROLLER_IMAGE: image})
    return made
