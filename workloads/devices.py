"""Device plugins: DaemonSets that tell the kubelets of some machines which devices these have, so that pods can ask for them.

    device_plugin(cluster, record, needs)

They run in kube-system: they need a folder of the machine, which Pod Security forbids in our own namespaces. They follow every
taint, for a machine without its plugin has no GPUs to give; they need no token for the API server.
"""

from collections.abc import Sequence

import pulumi
from pulumi_kubernetes.apps.v1 import DaemonSet
from pulumi_kubernetes.core.v1 import ContainerArgsDict, PodSpecArgsDict, SecurityContextArgsDict

from infra.cloud import Cluster, DevicePlugin
from workloads.names import NAME_LABEL

NAMESPACE = "kube-system"
SOCKETS = "/var/lib/kubelet/device-plugins"  # where the kubelet listens, and looks for the plugins' own sockets


def device_plugin(cluster: Cluster, record: DevicePlugin, needs: Sequence[pulumi.Resource]) -> pulumi.Resource:
    """It is ready at once where no such machine runs yet, and starts with each that boots."""
    labels = {NAME_LABEL: record.name}
    return DaemonSet(
        record.name,
        metadata={"name": record.name, "namespace": NAMESPACE, "labels": labels},
        spec={
            "selector": {"match_labels": labels},
            # A new version may take all machines at once: running pods keep their devices while the plugin restarts.
            "update_strategy": {"type": "RollingUpdate", "rolling_update": {"max_unavailable": "100%"}},
            "template": {"metadata": {"labels": labels}, "spec": _pod(record)},
        },
        opts=cluster.options(depends_on=needs),
    )


def _pod(record: DevicePlugin) -> PodSpecArgsDict:
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
