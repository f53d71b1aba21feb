"""The rendezvous store, and the CronJob that keeps its database small, from the files of workloads/manifests.

A database at its quota raises etcd's alarm NOSPACE and refuses writes until it is compacted, defragmented and told that all is
well: workloads/etcd/maintenance.py does so on a schedule and by hand, workloads/etcd/alarm.py tells people. No backup is made
here: what is in etcd is worth as much as the jobs that run, and the cloud takes snapshots of its volume.
"""

from collections.abc import Sequence

import pulumi

from infra import manifests
from infra.cloud import LABEL_NODE_GROUP, Cluster, NodeGroup, Storage
from infra.services.controller import IMAGE as CONTROLLER_IMAGE
from infra.services.names import SYSTEM, Resources
from infra.services.storage import claim

IMAGE = "ebb-etcd"  # what workloads/manifests/etcd.yaml says in place of an image
DATA = "data"  # what it calls the volume


def etcd(
    cluster: Cluster, storage: Storage, image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]
) -> Resources:
    """The rendezvous store: one member, its data on a volume. `needs`: the namespaces, the manager group, the priorities."""
    store = claim(cluster, storage.etcd, SYSTEM, needs)  # in place of the file's: it comes back with its data when the stack does
    volumes = [{"name": DATA, "persistentVolumeClaim": {"claimName": storage.etcd.claim}}]
    place = {"nodeSelector": {LABEL_NODE_GROUP: manager.name}, "volumes": volumes}
    documents = manifests.placed(manifests.read("etcd.yaml"), place)
    services = [document for document in documents if document["kind"] == "Service"]
    members = [document for document in documents if document["kind"] == "StatefulSet"]
    return [
        *manifests.declare(members, cluster.options(depends_on=[*needs, store]), images={IMAGE: image}),
        *manifests.declare(services, cluster.options(depends_on=needs)),
    ]


def etcd_maintenance(
    cluster: Cluster, image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]
) -> pulumi.Resource:
    """Defragments etcd now and then, and cures NOSPACE. `image`: the controller's. `needs`: etcd and what it needs."""
    place = {"nodeSelector": {LABEL_NODE_GROUP: manager.name}}
    documents = manifests.placed(manifests.read("maintenance.yaml"), place)
    (made,) = manifests.declare(documents, cluster.options(depends_on=needs), images={CONTROLLER_IMAGE: image})
    return made
