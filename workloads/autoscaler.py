"""Cluster-autoscaler, for clouds that do not bring one: makes machines for pods that wait, and removes machines that idle.

    autoscaler(cluster, record, manager, needs)

What it may do in the cloud, and which groups it knows, is in the record's arguments; here is what it may do in Kubernetes. The
cloud ties its own identity to ServiceAccount ebb-system/cluster-autoscaler.

The rules below are those that version 1.35 needs, found in its source (tag cluster-autoscaler-1.35.2: core, simulator and utils,
read 2026-11-21) beside upstream's example: without Endpoints (leases replaced them), without `update` of pods/status and `patch`
of Jobs, which nothing there uses, and its leases and ConfigMaps in its own namespace alone. It may change Nodes (it taints one
before it removes it) and evict pods, and creates or deletes nothing else.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import yaml
from pulumi_kubernetes import core, rbac
from pulumi_kubernetes.apps.v1 import Deployment
from pulumi_kubernetes.core.v1 import ContainerArgsDict, PodSpecArgsDict, ProbeArgsDict
from pulumi_kubernetes.rbac.v1 import PolicyRuleArgsDict

from infra.cloud import Autoscaler, Cluster, NodeGroup
from workloads.names import NAME_LABEL, SYSTEM, Resources
from workloads.pods import container_security, pod

NAME = "cluster-autoscaler"
PRIORITIES = "cluster-autoscaler-priority-expander"  # the name and the key are built into it
STATUS = "cluster-autoscaler-status"
PORT = 8085
_LOOK: Sequence[str] = ("get", "list", "watch")


def autoscaler(cluster: Cluster, record: Autoscaler, manager: NodeGroup, needs: Sequence[pulumi.Resource]) -> Resources:
    """`needs`: the namespaces, the manager group, the priorities. Jobs depend on it: it makes their machines."""
    options = cluster.options(depends_on=needs)
    account = core.v1.ServiceAccount(f"service-account-{NAME}", metadata={"name": NAME, "namespace": SYSTEM}, opts=options)
    priorities = core.v1.ConfigMap(
        PRIORITIES,
        metadata={"name": PRIORITIES, "namespace": SYSTEM},
        data={"priorities": _listed(record.priorities)},
        opts=options,
    )
    rights = [account, *_rights(options)]
    program = Deployment(
        NAME,
        metadata={"name": NAME, "namespace": SYSTEM, "labels": {NAME_LABEL: NAME}},
        spec={
            "replicas": 1,
            # Never two at once: the new one would wait for the old one's lease, and a machine for the new one's pod.
            "strategy": {"type": "Recreate"},
            "selector": {"match_labels": {NAME_LABEL: NAME}},
            "template": {
                "metadata": {
                    "labels": {NAME_LABEL: NAME},
                    "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": str(PORT)},
                },
                "spec": _pod(record, manager),
            },
        },
        opts=cluster.options(depends_on=[*needs, *rights, priorities]),
    )
    return [program, priorities, *rights]


def _listed(priorities: Mapping[int, Sequence[str]]) -> str:
    """The expander's own format: a group that no expression matches would never grow, so the cloud's record covers all."""
    plain: dict[int, list[str]] = {number: list(priorities[number]) for number in sorted(priorities, reverse=True)}
    return str(yaml.safe_dump(plain, sort_keys=False))


def _pod(record: Autoscaler, manager: NodeGroup) -> PodSpecArgsDict:
    health: ProbeArgsDict = {"http_get": {"path": "/health-check", "port": PORT}, "timeout_seconds": 5}
    container: ContainerArgsDict = {
        "name": NAME,
        "image": record.image,
        "image_pull_policy": "IfNotPresent",
        "command": ["/cluster-autoscaler"],
        "args": [f"--namespace={SYSTEM}", f"--address=:{PORT}", *record.arguments],
        "env": [{"name": name, "value": value} for name, value in sorted(record.environment.items())],
        "ports": [{"name": "metrics", "container_port": PORT}],
        # It says itself when its loop stands still (10 min) or only fails (15 min); the API server's start is not its fault.
        "liveness_probe": {**health, "period_seconds": 20, "failure_threshold": 6, "initial_delay_seconds": 60},
        "readiness_probe": {**health, "period_seconds": 5},
        # Upstream's example; it keeps all pods and nodes in memory.
        "resources": {"requests": {"cpu": "100m", "memory": "600Mi"}, "limits": {"memory": "1Gi"}},
        "security_context": container_security(),
    }
    spec = pod(container, [], manager, restart_policy="Always")
    return {**spec, "service_account_name": NAME, "automount_service_account_token": True}


def _rights(options: pulumi.ResourceOptions) -> Resources:
    subject: Any = [{"kind": "ServiceAccount", "name": NAME, "namespace": SYSTEM}]

    def binding(kind: str) -> Any:
        return {"api_group": "rbac.authorization.k8s.io", "kind": kind, "name": NAME}

    everywhere = rbac.v1.ClusterRole(f"cluster-role-{NAME}", metadata={"name": NAME}, rules=_cluster_rules(), opts=options)
    own = rbac.v1.Role(f"role-{NAME}", metadata={"name": NAME, "namespace": SYSTEM}, rules=_own_rules(), opts=options)
    bound = [
        rbac.v1.ClusterRoleBinding(
            f"cluster-role-binding-{NAME}",
            metadata={"name": NAME},
            role_ref=binding("ClusterRole"),
            subjects=subject,
            opts=options,
        ),
        rbac.v1.RoleBinding(
            f"role-binding-{NAME}",
            metadata={"name": NAME, "namespace": SYSTEM},
            role_ref=binding("Role"),
            subjects=subject,
            opts=options,
        ),
    ]
    return [everywhere, own, *bound]


def _cluster_rules() -> list[PolicyRuleArgsDict]:
    """What it looks at to tell whether a pod would fit on a machine (it runs the scheduler's own code), and what it changes."""
    volumes = ["persistentvolumeclaims", "persistentvolumes"]
    return [
        {"api_groups": [""], "resources": ["nodes"], "verbs": [*_LOOK, "update"]},
        {"api_groups": [""], "resources": ["pods/eviction", "events"], "verbs": ["create"]},
        {"api_groups": [""], "resources": ["events"], "verbs": ["patch"]},
        {"api_groups": [""], "resources": ["namespaces", "pods", "services", "replicationcontrollers", *volumes], "verbs": _LOOK},
        {"api_groups": ["apps"], "resources": ["daemonsets", "replicasets", "statefulsets"], "verbs": _LOOK},
        {"api_groups": ["batch"], "resources": ["jobs"], "verbs": _LOOK},
        {"api_groups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": _LOOK},
        {
            "api_groups": ["storage.k8s.io"],
            "resources": ["csidrivers", "csinodes", "csistoragecapacities", "storageclasses", "volumeattachments"],
            "verbs": _LOOK,
        },
        # Its flag for dynamic resources is locked to true since 1.35.
        {"api_groups": ["resource.k8s.io"], "resources": ["deviceclasses", "resourceclaims", "resourceslices"], "verbs": _LOOK},
    ]


def _own_rules() -> list[PolicyRuleArgsDict]:
    """Its lease, the priorities and its own report. A creation has no name yet, and an informer lists: so two name none."""
    return [
        {"api_groups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {"api_groups": ["coordination.k8s.io"], "resources": ["leases"], "resource_names": [NAME], "verbs": ["get", "update"]},
        {"api_groups": [""], "resources": ["configmaps"], "verbs": ["create", "list", "watch"]},
        {"api_groups": [""], "resources": ["configmaps"], "resource_names": [STATUS], "verbs": ["get", "update", "delete"]},
    ]
