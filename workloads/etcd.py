"""The rendezvous store, an older one where the stack wants it, and what keeps the database small, from workloads/manifests.

A database at its quota raises etcd's alarm NOSPACE and refuses writes until it is compacted, defragmented and the alarm
is cleared: ebb/controller/etcd/maintenance.py does so on a schedule and by hand, ebb/controller/etcd/alarm.py reports it.
No backup is made here: what is in etcd is worth as much as the jobs that run, and the cloud takes snapshots of its volume.
"""

from collections.abc import Sequence

import pulumi

from workloads import manifest
from workloads.cluster import SYSTEM, Cluster, Images, NodeGroup, Resources, Storage
from workloads.platform import IMAGE as CONTROLLER_IMAGE
from workloads.storage import claim

IMAGE, LEGACY_IMAGE = "ebb-etcd", "ebb-etcd-legacy"  # what the files say in place of an image
DATA = "data"  # what they call the volume


def etcd(
    cluster: Cluster, storage: Storage, image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]
) -> Resources:
    """The rendezvous store: one member, its data on a volume. `needs`: the namespaces, the manager group, the priorities."""
    store = claim(cluster, storage.etcd, SYSTEM, needs)  # in place of the file's: it comes back with its data when the stack does
    documents = manifest.placed(manifest.read("etcd.yaml"), _place(storage, manager))
    services = [document for document in documents if document["kind"] == "Service"]
    members = [document for document in documents if document["kind"] == "StatefulSet"]
    return [
        *manifest.declare(members, cluster.options(depends_on=[*needs, store]), images={IMAGE: image}),
        *manifest.declare(services, cluster.options(depends_on=needs)),
    ]


def legacy_etcd(
    cluster: Cluster, storage: Storage, images: Images, manager: NodeGroup, needs: Sequence[pulumi.Resource]
) -> Resources:
    """An etcd with the v2 API for torch's own rendezvous, if the stack wants one. `needs`: the other etcd and what it needs."""
    if images.legacy_etcd is None:
        return []
    documents = manifest.placed(manifest.read("etcd.yaml", manifest.LEGACY), _place(storage, manager))
    return manifest.declare(documents, cluster.options(depends_on=needs), images={LEGACY_IMAGE: images.legacy_etcd})


def _place(storage: Storage, manager: NodeGroup) -> manifest.Document:
    """On the machine that has the volume, with the stack's claim."""
    volumes = [{"name": DATA, "persistentVolumeClaim": {"claimName": storage.etcd.claim}}]
    return {"nodeSelector": manager.node_selector, "volumes": volumes}


def etcd_maintenance(
    cluster: Cluster, image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]
) -> pulumi.Resource:
    """Defragments etcd now and then, and clears NOSPACE. `image`: the controller's. `needs`: etcd and what it needs."""
    place = {"nodeSelector": manager.node_selector}
    documents = manifest.placed(manifest.read("maintenance.yaml"), place)
    (made,) = manifest.declare(documents, cluster.options(depends_on=needs), images={CONTROLLER_IMAGE: image})
    return made
