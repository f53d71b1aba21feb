"""Teams: a namespace each, with its roles, its quota of GPUs and what jobs need there.

    limits(cluster, teams, needs)          # quotas, etcd's name
    access(cluster, teams, needs)          # roles and bindings, when the policies are there
    documents(team)                        # all of this as plain Kubernetes objects, for tests

The roles are those of workloads/manifests/researcher.yaml: a researcher has these rights, a reader those of them that only look,
a lead these and the right to `team`, by which the policies of workloads/manifests/owners.yaml let a lead do to all jobs of the
team what their owners may. `kubectl scale` is for leads alone: its request does not say whose job it changes, and `ebb scale`
changes the job itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pulumi

from ebb.api.contract import TEAM_ETCD
from workloads import manifest
from workloads.cluster import JOB_API, JOBS, SYSTEM, TAINT_GPU, TEAMS, Cluster, Resources, Volume

LABEL: Final = "ebb.dev/team"  # of its namespace and quota: the team's name
QUOTA: Final = "team"  # the ResourceQuota of GPUs
RESEARCHER, PLATFORM = "ebb-researcher", "ebb-researcher-platform"
RBAC = "rbac.authorization.k8s.io"
LOOKS = ("get", "list", "watch")
INTO_PODS = ("pods/exec", "pods/portforward")  # `get` opens these too
SCALE = "elasticjobs/scale"

Subject = tuple[str, str]  # User or Group, and its name


@dataclass(frozen=True, kw_only=True)
class Team:
    """One team of the stack. None: no limit."""

    name: str
    gpus: int | None = None
    borrow: int = 0  # GPUs beyond these, of other teams' quotas, while those do not use them
    usd_per_month: float | None = None
    priority: str = ""  # of jobs that name none: a word of `ebb submit --priority`; "": the platform's
    readers: Sequence[Subject] = ()
    researchers: Sequence[Subject] = ()
    leads: Sequence[Subject] = ()

    @property
    def namespace(self) -> str:
        return f"{TEAMS}{self.name}"

    @property
    def etcd(self) -> str:
        """The name of its etcd's Service, in the platform's namespace."""
        return f"{TEAM_ETCD}{self.name}"

    def facts(self, volumes: Sequence[Volume]) -> dict[str, Any]:
        """Its entry in `ebb-platform` (ebb/api/platform.py reads it). `volumes`: those that it has."""
        told = {
            "gpus": self.gpus,
            "borrow": self.borrow or None,
            "usdPerMonth": self.usd_per_month,
            "priority": self.priority or None,
        }
        known = {key: one for key, one in told.items() if one is not None}
        return {"name": self.name, "namespace": self.namespace, "volumes": [one.facts() for one in volumes], **known}


def limits(cluster: Cluster, teams: Sequence[Team], needs: Sequence[pulumi.Resource]) -> Resources:
    """The quotas of GPUs, and what jobs and their records need. `needs`: the namespaces."""
    made: Resources = []
    for team in teams:
        made += manifest.declare(_basis(team), cluster.options(depends_on=needs), within=team.namespace)
    return made


def access(cluster: Cluster, teams: Sequence[Team], needs: Sequence[pulumi.Resource]) -> Resources:
    """The roles and their bindings. `needs`: the namespaces, and the policies: nobody gets in before these are there."""
    made: Resources = []
    for team in teams:
        made += manifest.declare(_access(team), cluster.options(depends_on=needs), within=team.namespace)
    return made


def documents(team: Team) -> list[manifest.Document]:
    """All objects of a team that need no machine, the namespace first; its etcd is not among them. For tests."""
    return [namespace(team), *_basis(team), *_access(team)]


def _basis(team: Team) -> list[manifest.Document]:
    return [*_quota(team), _etcd(team), *_records(team)]


def namespace(team: Team) -> manifest.Document:
    """Like that of jobs without a team."""
    (jobs,) = (one for one in manifest.read("namespaces.yaml") if one["metadata"]["name"] == JOBS)
    labels = {**jobs["metadata"]["labels"], LABEL: team.name}
    return {**jobs, "metadata": {"name": team.namespace, "labels": labels}}


def _quota(team: Team) -> Iterator[manifest.Document]:
    if team.gpus is not None:
        yield {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": QUOTA, "namespace": team.namespace, "labels": {LABEL: team.name}},
            "spec": {"hard": {f"requests.{TAINT_GPU}": str(team.gpus + team.borrow)}},
        }


def _etcd(team: Team) -> manifest.Document:
    """The name under which job files look for etcd: here it is the team's own."""
    (service,) = (one for one in manifest.read("etcd.yaml") if one["metadata"].get("namespace") == JOBS)
    place = service["spec"]["externalName"].partition(".")[2]
    return _moved({**service, "spec": {**service["spec"], "externalName": f"{team.etcd}.{place}"}}, team)


def _records(team: Team) -> list[manifest.Document]:
    """The controller's right to delete old records of jobs."""
    return [_moved(one, team) for one in manifest.read("rbac.yaml") if one["metadata"].get("namespace") == JOBS]


def _moved(document: manifest.Document, team: Team) -> manifest.Document:
    return {**document, "metadata": {**document["metadata"], "namespace": team.namespace}}


# ---------------------------------------------------------------------------------------------------------------- roles


def _access(team: Team) -> Iterator[manifest.Document]:
    """Roles and bindings; those of ebb-system and of the nodes are the researchers', for all who are in the team."""
    written = {
        (one["kind"], one["metadata"]["name"]): one for one in manifest.read("researcher.yaml") if not one["kind"].endswith("g")
    }
    rules = written["Role", RESEARCHER]["rules"]
    by_role = {
        "reader": (_only_looks(rules), team.readers),
        "researcher": (_without_scale(rules), team.researchers),
        "lead": ([*rules, _of_a_lead()], team.leads),
    }
    for role, (allowed, subjects) in by_role.items():
        metadata = {"name": f"ebb-{role}", "namespace": team.namespace}
        yield {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": allowed}
        yield _binding("Role", metadata, f"ebb-{role}", subjects)
    everybody = [*team.readers, *team.researchers, *team.leads]
    yield _binding("Role", {"name": team.namespace, "namespace": SYSTEM}, PLATFORM, everybody)
    yield _binding("ClusterRole", {"name": team.namespace}, RESEARCHER, everybody)


def _only_looks(rules: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """No Secret can be read by anybody, and nobody gets into a pod."""
    found = []
    for rule in rules:
        resources = [one for one in rule["resources"] if one not in INTO_PODS]
        verbs = [verb for verb in rule["verbs"] if verb in LOOKS]
        if resources and verbs:
            found.append({**rule, "resources": resources, "verbs": verbs})
    return found


def _without_scale(rules: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**rule, "verbs": ["get"]} if rule["resources"] == [SCALE] else rule for rule in rules]


def _of_a_lead() -> dict[str, Any]:
    verbs = ["create", "update", "delete", "connect"]  # as the policies ask for them
    return {"apiGroups": [JOB_API.partition("/")[0]], "resources": ["team"], "verbs": verbs}


def _binding(kind: str, metadata: dict[str, str], role: str, subjects: Sequence[Subject]) -> manifest.Document:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": one, "name": name} for one, name in dict.fromkeys(subjects)],
    }
