"""Programs that a cloud needs in the cluster: cluster-autoscaler and device plugins, for clouds that do not bring them, and the
agents of spot machines, which no cloud brings.

Cluster-autoscaler makes nodes for pods that wait, and removes nodes that idle. What it may do in the cloud, and which groups it
knows, is in the record's arguments; its rights in Kubernetes are here. The cloud ties its own identity to ServiceAccount
ebb-system/cluster-autoscaler. The rules are those that version 1.35 needs, found in its source (tag cluster-autoscaler-1.35.2:
core, simulator and utils, read 2026-11-21) beside upstream's example: without Endpoints (leases replaced them), without `update`
of pods/status and `patch` of Jobs, which nothing there uses, and its leases and ConfigMaps in its own namespace alone. It may
change Nodes (it taints one before it removes it) and evict pods, and creates or deletes nothing else.

Device plugins are DaemonSets that report devices to the kubelets of some nodes, so that pods can ask for them. They run in
kube-system: they need a folder of the node, which Pod Security forbids in our own namespaces. They tolerate every taint, for a
node without its plugin has no GPUs to give; they need no token for the API server.

The agents hear that the cloud takes a machine back, and mark its Node. They and their rights are in
workloads/manifests/notices.yaml, and in node-labels.yaml beside it is what labels nodes that Ebb does not make.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import yaml
from pulumi_kubernetes import core, rbac
from pulumi_kubernetes.apps.v1 import DaemonSet, Deployment
from pulumi_kubernetes.core.v1 import (
    ContainerArgsDict,
    PodSpecArgsDict,
    ProbeArgsDict,
    SecurityContextArgsDict,
    TolerationArgsDict,
)
from pulumi_kubernetes.rbac.v1 import PolicyRuleArgsDict

from workloads import manifest
from workloads.cluster import NAME_LABEL, SYSTEM, Autoscaler, Cluster, DevicePlugin, Helpers, NodeGroup, Resources
from workloads.platform import IMAGE
from workloads.pods import container_security, pod

AUTOSCALER = "cluster-autoscaler"
PRIORITIES = "cluster-autoscaler-priority-expander"  # the name and the key are built into it
STATUS = "cluster-autoscaler-status"
PORT = 8085
RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
_LOOK: Sequence[str] = ("get", "list", "watch")
PLUGIN_NAMESPACE = "kube-system"
SOCKETS = "/var/lib/kubelet/device-plugins"  # where the kubelet listens, and looks for the plugins' own sockets


def helpers(
    cluster: Cluster, record: Helpers, image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]
) -> Resources:
    """`image`: the controller's. `needs`: the namespaces, the manager group, the priorities. Jobs depend on all of it."""
    scaling = autoscaler(cluster, record.autoscaler, manager, needs) if record.autoscaler else []
    plugins = [device_plugin(cluster, plugin, needs) for plugin in record.device_plugins]
    agents = notices(cluster, image, needs) if record.notices else []
    return [*scaling, *plugins, *agents, *(node_labels(cluster, image, manager, needs) if record.labels else [])]


# ----------------------------------------------------------------------------------------------------------- autoscaler


def autoscaler(cluster: Cluster, record: Autoscaler, manager: NodeGroup, needs: Sequence[pulumi.Resource]) -> Resources:
    """`needs`: the namespaces, the manager group, the priorities. Jobs depend on it: it makes their machines."""
    options = cluster.options(depends_on=needs)
    account = core.v1.ServiceAccount(
        f"service-account-{AUTOSCALER}", metadata={"name": AUTOSCALER, "namespace": SYSTEM}, opts=options
    )
    priorities = core.v1.ConfigMap(
        PRIORITIES,
        metadata={"name": PRIORITIES, "namespace": SYSTEM},
        data={"priorities": _priorities(record.priorities)},
        opts=options,
    )
    rights = [account, *_rights(options)]
    program = Deployment(
        AUTOSCALER,
        metadata={"name": AUTOSCALER, "namespace": SYSTEM, "labels": {NAME_LABEL: AUTOSCALER}},
        spec={
            "replicas": 1,
            # Never two at once: the new one would wait for the old one's lease, and a machine for the new one's pod.
            "strategy": {"type": "Recreate"},
            "selector": {"match_labels": {NAME_LABEL: AUTOSCALER}},
            "template": {
                "metadata": {
                    "labels": {NAME_LABEL: AUTOSCALER},
                    "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": str(PORT)},
                },
                "spec": _autoscaler_pod(record, manager),
            },
        },
        opts=cluster.options(depends_on=[*needs, *rights, priorities]),
    )
    return [program, priorities, *rights]


def _priorities(priorities: Mapping[int, Sequence[str]]) -> str:
    """The expander's own format: a group that no expression matches would never grow, so the cloud's record covers all."""
    plain: dict[int, list[str]] = {number: list(priorities[number]) for number in sorted(priorities, reverse=True)}
    return str(yaml.safe_dump(plain, sort_keys=False))


def _autoscaler_pod(record: Autoscaler, manager: NodeGroup) -> PodSpecArgsDict:
    health: ProbeArgsDict = {"http_get": {"path": "/health-check", "port": PORT}, "timeout_seconds": 5}
    container: ContainerArgsDict = {
        "name": AUTOSCALER,
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
    # By default a pod stays bound to a machine that has died for five minutes.
    dead: list[TolerationArgsDict] = [
        {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "toleration_seconds": 30}
        for state in ("not-ready", "unreachable")
    ]
    return {**spec, "tolerations": dead, "service_account_name": AUTOSCALER, "automount_service_account_token": True}


def _rights(options: pulumi.ResourceOptions) -> Resources:
    subject: Any = [{"kind": "ServiceAccount", "name": AUTOSCALER, "namespace": SYSTEM}]

    def binding(kind: str) -> Any:
        return {"api_group": "rbac.authorization.k8s.io", "kind": kind, "name": AUTOSCALER}

    everywhere = rbac.v1.ClusterRole(
        f"cluster-role-{AUTOSCALER}", metadata={"name": AUTOSCALER}, rules=_cluster_rules(), opts=options
    )
    own = rbac.v1.Role(f"role-{AUTOSCALER}", metadata={"name": AUTOSCALER, "namespace": SYSTEM}, rules=_own_rules(), opts=options)
    bound = [
        rbac.v1.ClusterRoleBinding(
            f"cluster-role-binding-{AUTOSCALER}",
            metadata={"name": AUTOSCALER},
            role_ref=binding("ClusterRole"),
            subjects=subject,
            opts=options,
        ),
        rbac.v1.RoleBinding(
            f"role-binding-{AUTOSCALER}",
            metadata={"name": AUTOSCALER, "namespace": SYSTEM},
            role_ref=binding("Role"),
            subjects=subject,
            opts=options,
        ),
    ]
    return [everywhere, own, *bound]


def _cluster_rules() -> list[PolicyRuleArgsDict]:
    """Rights to read what decides if a pod would fit on a node (it runs the scheduler's own code), and to change nodes."""
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
        {
            "api_groups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resource_names": [AUTOSCALER],
            "verbs": ["get", "update"],
        },
        {"api_groups": [""], "resources": ["configmaps"], "verbs": ["create", "list", "watch"]},
        {"api_groups": [""], "resources": ["configmaps"], "resource_names": [STATUS], "verbs": ["get", "update", "delete"]},
    ]


# ---------------------------------------------------------------------------------------------- programs that mark nodes


def notices(cluster: Cluster, image: pulumi.Input[str], needs: Sequence[pulumi.Resource]) -> Resources:
    """The agents of spot machines."""
    return _kept_to_theirs(cluster, manifest.read("notices.yaml"), image, needs)


def node_labels(cluster: Cluster, image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]) -> Resources:
    """The program that labels the nodes which selectors choose."""
    documents = manifest.placed(manifest.read("node-labels.yaml"), {"nodeSelector": manager.node_selector})
    return _kept_to_theirs(cluster, documents, image, needs)


def _kept_to_theirs(
    cluster: Cluster, documents: Sequence[manifest.Document], image: pulumi.Input[str], needs: Sequence[pulumi.Resource]
) -> Resources:
    """A program that may change nodes. The policy that keeps it to its own part of them is there before it has any right."""
    made: Resources = []
    for kinds in (("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"), RIGHTS, ("DaemonSet", "Deployment")):
        chosen = [document for document in documents if document["kind"] in kinds]
        made += manifest.declare(chosen, cluster.options(depends_on=[*needs, *made]), images={IMAGE: image})
    return made


# ------------------------------------------------------------------------------------------------------- device plugins


def device_plugin(cluster: Cluster, record: DevicePlugin, needs: Sequence[pulumi.Resource]) -> pulumi.Resource:
    """It is ready at once where no such machine runs yet, and starts with each that boots."""
    labels = {NAME_LABEL: record.name}
    return DaemonSet(
        record.name,
        metadata={"name": record.name, "namespace": PLUGIN_NAMESPACE, "labels": labels},
        spec={
            "selector": {"match_labels": labels},
            # A new version may take all machines at once: running pods keep their devices while the plugin restarts.
            "update_strategy": {"type": "RollingUpdate", "rolling_update": {"max_unavailable": "100%"}},
            "template": {"metadata": {"labels": labels}, "spec": _plugin_pod(record)},
        },
        opts=cluster.options(depends_on=needs),
    )


def _plugin_pod(record: DevicePlugin) -> PodSpecArgsDict:
    container: ContainerArgsDict = {
        "name": "plugin",
        "image": record.image,
        "image_pull_policy": "IfNotPresent",
        "args": list(record.arguments),
        "env": [{"name": name, "value": value} for name, value in sorted(record.environment.items())],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}},
        "volume_mounts": [{"name": "sockets", "mount_path": SOCKETS}],
        "security_context": _security(record),
    }
    return {
        "containers": [container],
        "volumes": [{"name": "sockets", "host_path": {"path": SOCKETS, "type": "Directory"}}],
        "affinity": {
            "node_affinity": {
                "required_during_scheduling_ignored_during_execution": {
                    "node_selector_terms": [
                        {"match_expressions": [{"key": record.label, "operator": "In", "values": list(record.values)}]}
                    ]
                }
            }
        },
        "tolerations": [{"operator": "Exists"}],
        "priority_class_name": "system-node-critical",
        "host_network": record.privileged,  # what needs the whole machine needs its network devices too
        "automount_service_account_token": False,
        "enable_service_links": False,
        "security_context": {"seccomp_profile": {"type": "Unconfined" if record.privileged else "RuntimeDefault"}},
        "termination_grace_period_seconds": 10,
    }


def _security(record: DevicePlugin) -> SecurityContextArgsDict:
    """As root, to whom the folder of sockets belongs, but with no capability. Its root file system stays writable: the container
    runtime of GPU machines writes into it before the program starts (ldconfig for the driver's libraries)."""
    if record.privileged:
        return {"privileged": True, "run_as_user": 0}
    return {"run_as_user": 0, "allow_privilege_escalation": False, "capabilities": {"drop": ["ALL"]}}
