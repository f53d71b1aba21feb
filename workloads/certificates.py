"""The certificates by which each etcd knows who may ask it: empty Secrets, the program that fills them, and its rights.

    issued = servers(cluster, teams, image, manager, needs)        # before the etcds, which wait for theirs
    told = workers(cluster, teams, image, manager, needs)          # when the namespaces of jobs are there

The program is ebb/controller/etcd/certificates.py, in the cluster: the keys are made there, are not in Pulumi's state (a refresh
reads them into it, encrypted), and are renewed without an `up`. The Jobs run again when the teams or the image have changed, and
leave what is right as it is; a CronJob renews. `destroy` removes the Secrets: the next stack of the name has other authorities.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pulumi

from workloads import manifest
from workloads.cluster import ETCD, JOBS, SYSTEM, Cluster, NodeGroup, Resources
from workloads.platform import IMAGE
from workloads.teams import Team

NAME = "etcd-certificates"


def servers(
    cluster: Cluster, teams: Sequence[Team], image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]
) -> Resources:
    """Make what etcds and their maintenance need. `image`: the controller's. `needs`: the namespace, the manager group, the
    priorities."""
    own = [one for one in _written() if one["metadata"]["namespace"] == SYSTEM]
    written = [one for one in own if one["kind"] == "Secret"]
    of_one_etcd = [one for one in written if one["metadata"]["name"] in (f"{ETCD}-ca", f"{ETCD}-server")]
    secrets = [*written, *(_renamed(one, team) for team in teams for one in of_one_etcd)]
    made = _secrets(cluster, secrets, needs)
    rights = [one for one in own if one["kind"] in ("ServiceAccount", "Role", "RoleBinding")]
    for one in rights:
        if one["kind"] == "Role":
            one["rules"][0]["resourceNames"] = [secret["metadata"]["name"] for secret in secrets]
    made += manifest.declare(rights, cluster.options(depends_on=needs))
    return [*made, _job(cluster, "servers", teams, image=image, manager=manager, needs=[*needs, *made])]


def workers(
    cluster: Cluster, teams: Sequence[Team], image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]
) -> Resources:
    """Make what workers need, and the renewal of it all. `needs`: what `servers` made, and the namespaces of jobs."""
    made: Resources = []
    for namespace in (JOBS, *(team.namespace for team in teams)):
        here = [_moved(one, namespace) for one in _written() if one["metadata"]["namespace"] == JOBS]
        made += _secrets(cluster, [one for one in here if one["kind"] == "Secret"], needs, within=namespace)
        rights = [one for one in here if one["kind"] != "Secret"]
        made += manifest.declare(rights, cluster.options(depends_on=needs), within=namespace)
    (renewal,) = (one for one in _written() if one["kind"] == "CronJob")
    pods = renewal["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    pods["containers"][0]["command"] += _of(teams)
    placed = manifest.placed([renewal], {"nodeSelector": manager.node_selector})
    made += manifest.declare(placed, cluster.options(depends_on=[*needs, *made]), images={IMAGE: image})
    return [*made, _job(cluster, "workers", teams, image=image, manager=manager, needs=[*needs, *made])]


def _job(
    cluster: Cluster,
    only: str,
    teams: Sequence[Team],
    *,
    image: pulumi.Input[str],
    manager: NodeGroup,
    needs: Sequence[pulumi.Resource],
) -> pulumi.Resource:
    """The Job of the file for a part of the work. Pulumi waits until it has ended."""
    (job,) = (one for one in _written() if one["kind"] == "Job")
    job["metadata"]["name"] = f"{NAME}-{only}"
    del job["spec"]["ttlSecondsAfterFinished"]  # it stays, or each refresh would find it gone
    job["spec"]["template"]["spec"]["containers"][0]["command"] += [f"--only={only}", *_of(teams)]
    placed = manifest.placed([job], {"nodeSelector": manager.node_selector})
    (made,) = manifest.declare(placed, cluster.options(depends_on=needs), images={IMAGE: image})
    return made


def _secrets(
    cluster: Cluster, documents: Iterable[manifest.Document], needs: Sequence[pulumi.Resource], *, within: str = ""
) -> Resources:
    """Pulumi never looks at what is in them: it is the program's."""
    options = pulumi.ResourceOptions.merge(cluster.options(depends_on=needs), pulumi.ResourceOptions(ignore_changes=["data"]))
    return manifest.declare(documents, options, within=within)


def _written() -> list[manifest.Document]:
    return manifest.read("certificates.yaml")


def _of(teams: Sequence[Team]) -> list[str]:
    return [f"--team={team.name}" for team in teams]


def _renamed(document: manifest.Document, team: Team) -> manifest.Document:
    metadata: Mapping[str, Any] = document["metadata"]
    return {**document, "metadata": {**metadata, "name": metadata["name"].replace(ETCD, team.etcd, 1)}}


def _moved(document: manifest.Document, namespace: str) -> manifest.Document:
    return {**document, "metadata": {**document["metadata"], "namespace": namespace}}
