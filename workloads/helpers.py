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

Machines with RDMA run ebb/rdma.py, which loads drivers and lets workers lock memory; what workers ask for by dynamic resource
allocation is a ResourceClaimTemplate in the jobs' namespace.

The agents hear that the cloud takes a machine back, and mark its Node. They and their rights are in
workloads/manifests/notices.yaml, and in node-labels.yaml beside it is what labels nodes that Ebb does not make.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
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
    VolumeArgsDict,
    VolumeMountArgsDict,
)
from pulumi_kubernetes.rbac.v1 import PolicyRuleArgsDict
from pulumi_kubernetes.resource.v1 import ResourceClaimTemplate

from workloads import manifest
from workloads.cluster import (
    JOBS,
    LABEL_NODE_GROUP,
    NAME_LABEL,
    SYSTEM,
    Autoscaler,
    Cluster,
    DevicePlugin,
    Helpers,
    NodeGroup,
    RdmaMachines,
    Resources,
)
from workloads.platform import IMAGE
from workloads.pods import container_security, pod

AUTOSCALER = "cluster-autoscaler"
PRIORITIES = "cluster-autoscaler-priority-expander"  # the name and the key are built into it
STATUS = "cluster-autoscaler-status"
PORT = 8085
RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
_LOOK: Sequence[str] = ("get", "list", "watch")
PLUGIN_NAMESPACE = "kube-system"
RDMA = "ebb-rdma"
SOCKETS = "/var/lib/kubelet/device-plugins"  # where the kubelet listens, and looks for the plugins' own sockets


def helpers(
    cluster: Cluster, record: Helpers, image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]
) -> Resources:
    """`image`: the controller's. `needs`: the namespaces, the manager group, the priorities. Jobs depend on all of it."""
    scaling = autoscaler(cluster, record.autoscaler, manager, needs) if record.autoscaler else []
    plugins = [one for plugin in record.device_plugins for one in device_plugin(cluster, plugin, needs)]
    plugins += [rdma(cluster, record.rdma, image, needs)] if record.rdma else []
    agents = notices(cluster, image, needs) if record.notices else []
    return [*scaling, *plugins, *agents, *(node_labels(cluster, image, manager, needs) if record.labels else [])]


def device_claims(
    cluster: Cluster, groups: Sequence[NodeGroup], needs: Sequence[pulumi.Resource], teams: Iterable[str] = ()
) -> Resources:
    """Templates by which workers on these groups claim devices, one in each namespace of jobs. `needs`: the namespaces; `teams`:
    those of teams."""
    claims = {group.network.claim: None for group in groups if group.network and group.network.claim}
    return [
        ResourceClaimTemplate(
            claim.name if namespace == JOBS else f"{namespace}-{claim.name}",
            metadata={"name": claim.name, "namespace": namespace},
            spec={
                "spec": {
                    "devices": {
                        "requests": [
                            {
                                "name": "interfaces",
                                "exactly": {
                                    "device_class_name": claim.device_class,
                                    "allocation_mode": "ExactCount",
                                    "count": claim.count,
                                },
                            }
                        ]
                    }
                }
            },
            opts=cluster.options(depends_on=needs),
        )
        for claim in claims
        for namespace in (JOBS, *teams)
    ]


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
        "startup_probe": {**health, "period_seconds": 5, "failure_threshold": 60},
        "liveness_probe": {**health, "period_seconds": 20, "failure_threshold": 6},
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


def device_plugin(cluster: Cluster, record: DevicePlugin, needs: Sequence[pulumi.Resource]) -> Resources:
    """It is ready at once where no such machine runs yet, and starts with each that boots."""
    if record.config is None:
        return [_on_machines(cluster, record.name, _plugin_pod(record), needs)]
    path, text = record.config
    config = core.v1.ConfigMap(
        record.name,
        metadata={"name": _config_name(record.name, text), "namespace": PLUGIN_NAMESPACE},
        data={path.rpartition("/")[2]: text},
        opts=cluster.options(depends_on=needs),
    )
    return [config, _on_machines(cluster, record.name, _plugin_pod(record), [*needs, config])]


def _config_name(plugin: str, text: str) -> str:
    """Other text is another name, and so another pod, which reads it."""
    return f"{plugin}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def rdma(cluster: Cluster, record: RdmaMachines, image: pulumi.Input[str], needs: Sequence[pulumi.Resource]) -> pulumi.Resource:
    """See ebb/rdma.py. Privileged, as it changes other processes and the kernel."""
    arguments = ["--modules", *record.modules] if record.modules else []
    container: ContainerArgsDict = {
        "name": "rdma",
        "image": image,
        "image_pull_policy": "IfNotPresent",
        "command": ["python3", "-m", "ebb.rdma", *arguments],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "volume_mounts": [{"name": "host", "mount_path": "/host", "read_only": True}] if record.modules else [],
        "security_context": {"privileged": True, "run_as_user": 0, "read_only_root_filesystem": True},
    }
    spec: PodSpecArgsDict = {
        **_machine_pod(container, LABEL_NODE_GROUP, record.groups, seccomp="Unconfined"),
        "host_pid": True,
        "volumes": [{"name": "host", "host_path": {"path": "/", "type": "Directory"}}] if record.modules else [],
    }
    return _on_machines(cluster, RDMA, spec, needs)


def _on_machines(cluster: Cluster, name: str, spec: PodSpecArgsDict, needs: Sequence[pulumi.Resource]) -> DaemonSet:
    labels = {NAME_LABEL: name}
    return DaemonSet(
        name,
        metadata={"name": name, "namespace": PLUGIN_NAMESPACE, "labels": labels},
        spec={
            "selector": {"match_labels": labels},
            # A new version may take all machines at once: running pods keep their devices while the plugin restarts.
            "update_strategy": {"type": "RollingUpdate", "rolling_update": {"max_unavailable": "100%"}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
        opts=cluster.options(depends_on=needs),
    )


def _plugin_pod(record: DevicePlugin) -> PodSpecArgsDict:
    mounts: list[VolumeMountArgsDict] = [{"name": "sockets", "mount_path": SOCKETS}]
    volumes: list[VolumeArgsDict] = [{"name": "sockets", "host_path": {"path": SOCKETS, "type": "Directory"}}]
    if record.config is not None:
        path, text = record.config
        mounts += [
            {"name": "config", "mount_path": path.rpartition("/")[0], "read_only": True},
            {"name": "devices", "mount_path": "/dev"},  # it looks for those that it hands out
        ]
        volumes += [
            {"name": "config", "config_map": {"name": _config_name(record.name, text)}},
            {"name": "devices", "host_path": {"path": "/dev", "type": "Directory"}},
        ]
    container: ContainerArgsDict = {
        "name": "plugin",
        "image": record.image,
        "image_pull_policy": "IfNotPresent",
        "args": list(record.arguments),
        "env": [{"name": name, "value": value} for name, value in sorted(record.environment.items())],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}},
        "volume_mounts": mounts,
        "security_context": _security(record),
    }
    seccomp = "Unconfined" if record.privileged else "RuntimeDefault"
    return {
        **_machine_pod(container, record.label, record.values, seccomp=seccomp),
        "volumes": volumes,
        "host_network": record.privileged,  # what needs the whole machine needs its network devices too
    }


def _machine_pod(container: ContainerArgsDict, label: str, values: Sequence[str], *, seccomp: str) -> PodSpecArgsDict:
    return {
        "containers": [container],
        "affinity": {
            "node_affinity": {
                "required_during_scheduling_ignored_during_execution": {
                    "node_selector_terms": [{"match_expressions": [{"key": label, "operator": "In", "values": list(values)}]}]
                }
            }
        },
        "tolerations": [{"operator": "Exists"}],
        "priority_class_name": "system-node-critical",
        "automount_service_account_token": False,
        "enable_service_links": False,
        "security_context": {"seccomp_profile": {"type": seccomp}},
        "termination_grace_period_seconds": 10,
    }


def _security(record: DevicePlugin) -> SecurityContextArgsDict:
    """As root, to whom the folder of sockets belongs, but with no capability. Its root file system stays writable: the container
    runtime of GPU machines writes into it before the program starts (ldconfig for the driver's libraries)."""
    if record.privileged:
        return {"privileged": True, "run_as_user": 0}
    return {"run_as_user": 0, "allow_privilege_escalation": False, "capabilities": {"drop": ["ALL"]}}
