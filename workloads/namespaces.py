"""The namespaces of the platform, of jobs and of teams: Pod Security levels, quotas, network policies, priorities, roles.

    spaces = namespaces(cluster, machines)
    theirs = of_teams(cluster, teams, needs)
    limits(cluster, spaces, teams)     # before everything else that is made in the namespaces: see there
    access(cluster, needs)             # the researchers' roles, of workloads/manifests/researcher.yaml

Quotas count objects; CPU and memory are bounded by the node groups' sizes already. There is no LimitRange: pods of the platform
and of `ebb submit` say what they need, and a default for a job file that does not would be wrong for most.

Network policies are the same on every cloud, and count where the cluster's network enforces them. Jobs may reach the internet
(data, package mirrors, a logger of the researcher's choice) but not the link-local addresses, where clouds give out an instance's
identity. A policy does not know the API server's address, which on the clouds is in the network of the file systems; what keeps
jobs away from it is that their pods carry no token and their account has no rights.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi_kubernetes import core
from pulumi_kubernetes.core.v1 import ResourceQuotaSpecArgsDict
from pulumi_kubernetes.networking.v1 import (
    NetworkPolicy,
    NetworkPolicyEgressRuleArgsDict,
    NetworkPolicyIngressRuleArgsDict,
    NetworkPolicyPeerArgsDict,
    NetworkPolicySpecArgsDict,
)

from ebb.api.contract import LABEL_COPY, LABEL_INDEX
from workloads import manifest
from workloads.cluster import (
    COMPONENT_LABEL,
    ETCD_PORT,
    GATEWAY,
    JOBS,
    LEGACY_ETCD,
    NAME_LABEL,
    PLATFORM_PRIORITY,
    RENDEZVOUS,
    SYSTEM,
    TEAMS,
    Cluster,
    Resources,
)
from workloads.teams import Team, namespace

LINK_LOCAL = "169.254.0.0/16"  # metadata (169.254.169.254) and identity agents of machines (EKS Pod Identity: 169.254.170.23)
EVERY_POD: Mapping[str, Any] = {}
# A load balancer or its node port would be made by the cluster and not by Pulumi: it costs money, opens the network, and stays
# in the cloud after `pulumi destroy`.
NOTHING_IN_THE_CLOUD: Mapping[str, str] = {"services.loadbalancers": "0", "services.nodeports": "0"}
# A loop that submits without end must not fill the API server's store, and no stack shall meet these limits: 10,000 workers, or
# as many jobs of one, each with a Service, and as much again for those that end while others start. Records of jobs are
# ConfigMaps and stay for 400 days: 50k are some 120 jobs a day.
# Written as the API server writes them back, so that a refresh finds no difference.
MANY: Mapping[str, str] = {
    "pods": "20k",
    "services": "20k",
    "configmaps": "50k",
    "secrets": "50",
    # The stack's own are a handful. A pod's template can ask for more (an `ephemeral` volume), each a disk where the cloud lets
    # the cluster make disks.
    "persistentvolumeclaims": "16",
}


def namespaces(cluster: Cluster, machines: Sequence[pulumi.Resource]) -> dict[str, pulumi.Resource]:
    """The platform's namespace and the jobs', by name.

    They depend on the machines for the way down: a namespace is gone when its last pod has ended, and for that a pod needs its
    machine.
    """
    return _by_name("namespaces.yaml", cluster.options(depends_on=machines))


def of_teams(cluster: Cluster, teams: Sequence[Team], needs: Sequence[pulumi.Resource]) -> dict[str, pulumi.Resource]:
    """Those of teams, by name. `needs`: the machines, and what workers use to their end: here the jobs go with their namespace,
    as a team may leave a stack that stays."""
    spaces = [namespace(team) for team in teams]
    names = [one["metadata"]["name"] for one in spaces]
    return dict(zip(names, manifest.declare(spaces, cluster.options(depends_on=needs)), strict=True))


def priorities(cluster: Cluster) -> dict[str, pulumi.Resource]:
    """The platform's pods go before jobs, and what jobs cannot do without goes before their elastic rest."""
    return _by_name("priorities.yaml", cluster.options())


def _by_name(file: str, options: pulumi.ResourceOptions) -> dict[str, pulumi.Resource]:
    documents = manifest.read(file)
    names = [document["metadata"]["name"] for document in documents]
    return dict(zip(names, manifest.declare(documents, options), strict=True))


# -------------------------------------------------------------------------------------------------------- who may do what


def access(cluster: Cluster, needs: Sequence[pulumi.Resource]) -> Resources:
    """The researchers' roles and their bindings. `needs`: the namespaces.

    The rules are for the group `ebb:researchers`. Who is in it is the cloud's to say: an access entry, a certificate's
    organisation; a cloud that cannot put people into it names its own groups and people instead (Cluster.researchers). A stack
    that names nobody has rules without a subject, which do nothing.
    """
    documents = [_bound(document, cluster.researchers) for document in manifest.read("researcher.yaml")]
    return manifest.declare(documents, cluster.options(depends_on=needs))


def _bound(document: manifest.Document, researchers: Sequence[tuple[str, str]]) -> manifest.Document:
    """A binding with the cloud's researchers in place of the file's group."""
    if "subjects" not in document:
        return document
    api = document["subjects"][0]["apiGroup"]
    return {**document, "subjects": [{"apiGroup": api, "kind": kind, "name": name} for kind, name in researchers]}


# ------------------------------------------------------------------------------------------------------- quotas, policies


def limits(cluster: Cluster, spaces: Mapping[str, pulumi.Resource], teams: Sequence[Team] = ()) -> Resources:
    """Quotas and network policies in these namespaces. `teams`: all of the stack, whose etcds are in the platform's.

    Whatever else is made in the namespaces depends on them: until Kubernetes has counted what is there, a quota lets nothing in
    that it counts; and no pod shall run before its policy.
    """
    return [*_quotas(cluster, spaces), *policies(cluster, spaces, teams)]


def _quotas(cluster: Cluster, spaces: Mapping[str, pulumi.Resource]) -> Resources:
    # The classes of Kubernetes' agents and of the platform: a job in one of them would push those off their machine, or other
    # people's workers off theirs.
    critical: ResourceQuotaSpecArgsDict = {
        "hard": {"pods": "0"},
        "scope_selector": {
            "match_expressions": [
                {
                    "scope_name": "PriorityClass",
                    "operator": "In",
                    "values": ["system-cluster-critical", "system-node-critical", PLATFORM_PRIORITY],
                }
            ]
        },
    }
    made: Resources = []
    if SYSTEM in spaces:
        made.append(_quota(cluster, spaces, SYSTEM, "objects", {"hard": NOTHING_IN_THE_CLOUD}))
    for one in _of_jobs(spaces):
        made.append(_quota(cluster, spaces, one, "objects", {"hard": {**NOTHING_IN_THE_CLOUD, **MANY}}))
        made.append(_quota(cluster, spaces, one, "critical-pods", critical))
    return made


def _of_jobs(spaces: Mapping[str, pulumi.Resource]) -> list[str]:
    return [name for name in spaces if name != SYSTEM]


def _quota(
    cluster: Cluster, spaces: Mapping[str, pulumi.Resource], namespace: str, name: str, spec: ResourceQuotaSpecArgsDict
) -> pulumi.Resource:
    return core.v1.ResourceQuota(
        f"quota-{namespace}-{name}",
        metadata={"name": name, "namespace": namespace},
        spec=spec,
        opts=cluster.options(depends_on=[spaces[namespace]]),
    )


def policies(cluster: Cluster, spaces: Mapping[str, pulumi.Resource], teams: Sequence[Team]) -> Resources:
    """They are there before pods. A network plugin may still let a new pod speak for the second that it needs to set them up; so
    what they guard has a second lock: hop limit 1, no tokens in pods, Kubernetes' own rights."""
    specs: dict[tuple[str, str], NetworkPolicySpecArgsDict] = {}
    if SYSTEM in spaces:
        specs |= {(SYSTEM, "platform"): _platform(), (SYSTEM, "etcd"): _etcd({COMPONENT_LABEL: RENDEZVOUS}, [JOBS])}
        if teams:  # torch's own rendezvous is one for all
            specs[SYSTEM, LEGACY_ETCD] = _etcd({NAME_LABEL: LEGACY_ETCD}, [team.namespace for team in teams])
        specs |= {(SYSTEM, team.etcd): _etcd({NAME_LABEL: team.etcd}, [team.namespace]) for team in teams}
    for one in _of_jobs(spaces):
        specs |= {(one, "jobs"): _jobs(one), (one, "gateway"): _gateway()}
    return [
        NetworkPolicy(
            f"network-policy-{namespace}-{name}" if namespace.startswith(TEAMS) else f"network-policy-{name}",
            metadata={"name": name, "namespace": namespace},
            spec=spec,
            opts=cluster.options(depends_on=[spaces[namespace]]),
        )
        for (namespace, name), spec in specs.items()
    ]


def _jobs(namespace: str) -> NetworkPolicySpecArgsDict:
    """In: ranks of the namespace's jobs among themselves, and the platform, which reads their metrics. IPv6 is not let out at
    all: no stack has it, and its metadata address is no link-local one."""
    world: NetworkPolicyPeerArgsDict = {"ip_block": {"cidr": "0.0.0.0/0", "except_": [LINK_LOCAL]}}
    egress: list[NetworkPolicyEgressRuleArgsDict] = [
        {"to": [world]},
        # Some network plugins (Cilium) take address blocks for what is outside of the cluster: what jobs need inside, by name.
        {"to": [_namespace(namespace)]},
        {"to": [_namespace(SYSTEM)], "ports": [{"protocol": "TCP", "port": ETCD_PORT}]},
        {"to": [_namespace("kube-system")], "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]},
    ]
    others = {"match_expressions": [{"key": NAME_LABEL, "operator": "NotIn", "values": [GATEWAY]}]}
    return _spec(others, ingress=[{"from_": [_namespace(namespace), _namespace(SYSTEM)]}], egress=egress)


def _gateway() -> NetworkPolicySpecArgsDict:
    """A second wall: it listens on its loopback alone. Nobody comes in, and it speaks to nobody: port-forward and probes begin in
    the pod itself, and the machine mounts its volumes. A job that gives itself the gateway's label is shut off as well."""
    return _spec({"match_labels": {NAME_LABEL: GATEWAY}}, ingress=[], egress=[])


def _platform() -> NetworkPolicySpecArgsDict:
    """Nothing comes in but from the platform itself: metrics. Probes come from the machine, which policies let through."""
    return _spec(EVERY_POD, ingress=[{"from_": [_namespace(SYSTEM)]}])


def _etcd(labels: Mapping[str, str], of_jobs: Sequence[str]) -> NetworkPolicySpecArgsDict:
    """Beside that, the jobs of these namespaces meet in the etcd with these labels."""
    return _spec(
        {"match_labels": dict(labels)},
        ingress=[{"from_": [_namespace(one) for one in of_jobs], "ports": [{"protocol": "TCP", "port": ETCD_PORT}]}],
    )


def copies_policy(
    cluster: Cluster, addresses: Sequence[tuple[str, int]], needs: Sequence[pulumi.Resource], *, namespace: str, suffix: str
) -> NetworkPolicy:
    """Beside what every pod of the jobs may, those that copy buckets may ask for their identity's credentials. A worker may carry
    their label, as its template's labels are its own; the index is the controller's, and keeps workers out."""
    pods = [{"key": LABEL_COPY, "operator": "Exists"}, {"key": LABEL_INDEX, "operator": "DoesNotExist"}]
    return _way(cluster, "copies", pods, addresses, needs, namespace=namespace, suffix=suffix)


def sidecars_policy(
    cluster: Cluster, addresses: Sequence[tuple[str, int]], needs: Sequence[pulumi.Resource], *, namespace: str, suffix: str
) -> NetworkPolicy:
    """The same for workers, where the cloud adds to each what mounts its buckets."""
    pods = [{"key": LABEL_INDEX, "operator": "Exists"}]
    return _way(cluster, "sidecars", pods, addresses, needs, namespace=namespace, suffix=suffix)


def _way(
    cluster: Cluster,
    name: str,
    pods: Sequence[Mapping[str, str]],
    addresses: Sequence[tuple[str, int]],
    needs: Sequence[pulumi.Resource],
    *,
    namespace: str,
    suffix: str,
) -> NetworkPolicy:
    """Policies add up: it takes nothing away."""
    rules: list[NetworkPolicyEgressRuleArgsDict] = [
        {"to": [{"ip_block": {"cidr": cidr}}], "ports": [{"protocol": "TCP", "port": port}]} for cidr, port in addresses
    ]
    return NetworkPolicy(
        f"network-policy-{name}{suffix}",
        metadata={"name": name, "namespace": namespace},
        spec=_spec({"match_expressions": pods}, ingress=[], egress=rules),
        opts=cluster.options(depends_on=needs),
    )


def _namespace(name: str) -> NetworkPolicyPeerArgsDict:
    """All pods of a namespace; the API server itself sets this label."""
    return {"namespace_selector": {"match_labels": {"kubernetes.io/metadata.name": name}}}


def _spec(
    pods: Mapping[str, Any],
    *,
    ingress: Sequence[NetworkPolicyIngressRuleArgsDict],
    egress: Sequence[NetworkPolicyEgressRuleArgsDict] | None = None,
) -> NetworkPolicySpecArgsDict:
    spec: NetworkPolicySpecArgsDict = {"pod_selector": dict(pods), "policy_types": ["Ingress"], "ingress": ingress}  # type: ignore[typeddict-item]
    if egress is not None:
        spec = {**spec, "policy_types": ["Ingress", "Egress"], "egress": egress}
    return spec
