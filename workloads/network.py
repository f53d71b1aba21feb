"""Who may speak to whom: plain NetworkPolicies, the same on every cloud. They count where the cluster's network enforces them.

    policies(cluster, spaces)

Jobs may reach the world (data, package mirrors, a logger of the researcher's choice) but not the link-local addresses, where
clouds answer a machine's identity to whoever asks. The API server's address is not known to a policy, and on the clouds it is in
the network of the file systems; what keeps jobs away from it is that their pods carry no token, and that their account has no
right.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi_kubernetes.networking.v1 import (
    NetworkPolicy,
    NetworkPolicyEgressRuleArgsDict,
    NetworkPolicyIngressRuleArgsDict,
    NetworkPolicyPeerArgsDict,
    NetworkPolicySpecArgsDict,
)

from infra.cloud import Cluster
from workloads.names import COMPONENT_LABEL, ETCD_PORT, GATEWAY, JOBS, NAME_LABEL, RENDEZVOUS, SYSTEM, Resources

LINK_LOCAL = "169.254.0.0/16"  # metadata (169.254.169.254) and identity agents of machines (EKS Pod Identity: 169.254.170.23)
EVERY_POD: Mapping[str, Any] = {}


def policies(cluster: Cluster, spaces: Mapping[str, pulumi.Resource]) -> Resources:
    """They are there before pods. A network plugin may still let a new pod speak for the second that it needs to set them up; so
    what they guard has a second lock: hop limit 1, no tokens in pods, Kubernetes' own rights."""
    specs: Mapping[tuple[str, str], NetworkPolicySpecArgsDict] = {
        (JOBS, "jobs"): _jobs(),
        (JOBS, "gateway"): _gateway(),
        (SYSTEM, "platform"): _platform(),
        (SYSTEM, "etcd"): _etcd(),
    }
    return [
        NetworkPolicy(
            f"network-policy-{name}",
            metadata={"name": name, "namespace": namespace},
            spec=spec,
            opts=cluster.options(depends_on=[spaces[namespace]]),
        )
        for (namespace, name), spec in specs.items()
    ]


def _jobs() -> NetworkPolicySpecArgsDict:
    """In: ranks of the jobs among themselves, and the platform, which reads their metrics. IPv6 is not let out at all: no stack
    has it, and its metadata address is no link-local one."""
    world: NetworkPolicyPeerArgsDict = {"ip_block": {"cidr": "0.0.0.0/0", "except_": [LINK_LOCAL]}}
    egress: list[NetworkPolicyEgressRuleArgsDict] = [
        {"to": [world]},
        # Some network plugins (Cilium) take address blocks for what is outside of the cluster: what jobs need inside, by name.
        {"to": [_namespace(JOBS)]},
        {"to": [_namespace(SYSTEM)], "ports": [{"protocol": "TCP", "port": ETCD_PORT}]},
        {"to": [_namespace("kube-system")], "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]},
    ]
    others = {"match_expressions": [{"key": NAME_LABEL, "operator": "NotIn", "values": [GATEWAY]}]}
    return _spec(others, ingress=[{"from_": [_namespace(JOBS), _namespace(SYSTEM)]}], egress=egress)


def _gateway() -> NetworkPolicySpecArgsDict:
    """Nobody comes in, and it speaks to nobody: port-forward begins in the pod itself, and the machine mounts its volumes. A job
    that gives itself the gateway's label is shut off in the same way."""
    return _spec({"match_labels": {NAME_LABEL: GATEWAY}}, ingress=[], egress=[])


def _platform() -> NetworkPolicySpecArgsDict:
    """Nothing comes in but from the platform itself: metrics. Probes come from the machine, which policies let through."""
    return _spec(EVERY_POD, ingress=[{"from_": [_namespace(SYSTEM)]}])


def _etcd() -> NetworkPolicySpecArgsDict:
    """Beside that, the jobs meet in etcd."""
    return _spec(
        {"match_labels": {COMPONENT_LABEL: RENDEZVOUS}},
        ingress=[{"from_": [_namespace(JOBS)], "ports": [{"protocol": "TCP", "port": ETCD_PORT}]}],
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
