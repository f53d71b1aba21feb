"""The rendezvous store, an older one where the stack wants it, and what keeps the database small, from workloads/manifests.

A database at its quota raises etcd's alarm NOSPACE and refuses writes until it is compacted, defragmented and the alarm
is cleared: ebb/controller/etcd/maintenance.py does so on a schedule and by hand, ebb/controller/etcd/alarm.py reports it.
No backup is made here: what is in etcd is worth as much as the jobs that run, and the cloud takes snapshots of its volume.

Each team has an etcd of its own: jobs of others neither reach nor fill it, and its certificates open no other (certificates.py).
(Users of one etcd would keep keys apart, but not the quota, and a password that is lost with the stack would shut out the next
one, which finds the volume.) The older one speaks plain text: it is for images that are not ours, and know no certificates.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pulumi

from workloads import manifest
from workloads.cluster import COMPONENT_LABEL, ETCD, ETCD_PORT, NAME_LABEL, SYSTEM, Cluster, Images, NodeGroup, Resources, Storage
from workloads.platform import IMAGE as CONTROLLER_IMAGE
from workloads.storage import claim
from workloads.teams import Team

IMAGE, LEGACY_IMAGE = "ebb-etcd", "ebb-etcd-legacy"  # what the files say in place of an image
DATA, TLS = "data", "tls"  # what they call the volumes
# Of a team's etcd, measured at rest: 30 MB. A manager machine of 2 CPUs carries a dozen of them.
TEAM_REQUESTS: Final = {"cpu": "25m", "memory": "64Mi"}
TEAM_DATA: Final = "2Gi"  # as the volume of the other, and for the same reasons


def etcd(
    cluster: Cluster, storage: Storage, image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]
) -> Resources:
    """The rendezvous store: one member, its data on a volume. `needs`: the namespaces, the manager group, the priorities, the
    certificates."""
    store = claim(cluster, storage.etcd, SYSTEM, needs)  # in place of the file's: it comes back with its data when the stack does
    documents = manifest.placed(manifest.read("etcd.yaml"), _place(storage, manager, _certificates(ETCD)))
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


def of_teams(
    cluster: Cluster, teams: Sequence[Team], image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]
) -> Resources:
    """One for each team, for its jobs alone (workloads/namespaces.py). Its data is in its pod, and gone with that: jobs that meet
    by Ebb's rendezvous register again. `needs`: the namespaces, the manager group, the priorities, the certificates."""
    made: Resources = []
    for team in teams:
        volumes = [{"name": DATA, "emptyDir": {"sizeLimit": TEAM_DATA}}, _certificates(team.etcd)]
        place = {"nodeSelector": manager.node_selector, "volumes": volumes}
        documents = manifest.placed(_of_team(team), place)
        made += manifest.declare(documents, cluster.options(depends_on=needs), images={IMAGE: image})
    return made


def _of_team(team: Team) -> Iterator[manifest.Document]:
    """The file's etcd and its Service under another name."""
    for document in manifest.read("etcd.yaml"):
        if document["kind"] in ("Service", "StatefulSet") and document["metadata"]["name"] == ETCD:
            renamed: manifest.Document = _renamed(document, team.etcd)
            if renamed["kind"] == "StatefulSet":
                template = renamed["spec"]["template"]
                template["metadata"]["labels"].pop(COMPONENT_LABEL)  # it lets in jobs without a team
                (container,) = template["spec"]["containers"]
                container["resources"] = {**container["resources"], "requests": dict(TEAM_REQUESTS)}
            yield renamed


def _renamed(value: Any, name: str) -> Any:
    """A copy in which names and labels that are etcd's, and its address, are those of another."""
    if isinstance(value, dict):
        own = ("name", "serviceName", NAME_LABEL)
        found = {key: name if key in own and one == ETCD else _renamed(one, name) for key, one in value.items()}
        return {**found, "name": ETCD} if "command" in found else found  # a container's is its own
    if isinstance(value, list):
        return [_renamed(one, name) for one in value]
    return value.replace(f"//{ETCD}.", f"//{name}.") if isinstance(value, str) else value


def _place(storage: Storage, manager: NodeGroup, *volumes: manifest.Document) -> manifest.Document:
    """On the machine that has the volume, with the stack's claim, and further volumes."""
    data = {"name": DATA, "persistentVolumeClaim": {"claimName": storage.etcd.claim}}
    return {"nodeSelector": manager.node_selector, "volumes": [data, *volumes]}


def _certificates(etcd: str) -> manifest.Document:
    """The file's volume with what an etcd shows, and asks for."""
    (member,) = (one for one in manifest.read("etcd.yaml") if one["kind"] == "StatefulSet")
    (volume,) = (one for one in member["spec"]["template"]["spec"]["volumes"] if one["name"] == TLS)
    return {**volume, "secret": {**volume["secret"], "secretName": f"{etcd}-server"}}


def etcd_maintenance(
    cluster: Cluster,
    image: pulumi.Input[str],
    manager: NodeGroup,
    needs: Sequence[pulumi.Resource],
    teams: Sequence[Team] = (),
) -> pulumi.Resource:
    """Defragments etcd now and then, and clears NOSPACE; those of teams too. `image`: the controller's. `needs`: the etcds and
    what they need."""
    written = manifest.read("maintenance.yaml")
    (container,) = written[0]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    container["command"] += [f"--etcd=https://{team.etcd}:{ETCD_PORT}" for team in teams]
    documents = manifest.placed(written, {"nodeSelector": manager.node_selector})
    (made,) = manifest.declare(documents, cluster.options(depends_on=needs), images={CONTROLLER_IMAGE: image})
    return made
