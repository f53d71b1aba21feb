"""Checks of a worker's template against requests that would get out of the jobs' sandbox, or past other people's workers.

    problem = refusal(template, priority_class)        # "" if it may run; else one sentence with field, value, why and the fix

Here and in manifests/policy.yaml, for clusters that have that policy and for those that have not. What Pod Security refuses
(privileged containers, host paths, host ports) is left to the namespace's own level. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ebb.api.contract import LABEL_NODE_GROUP, MANAGER_GROUP, WORKER_CONTAINER

POD = "spec.replicaSpecs.Worker.template.spec"
ACCOUNT = "default"
SYSTEM_CLASSES = "system-"  # Kubernetes keeps this prefix for its own: system-cluster-critical, system-node-critical
PLATFORM_CLASS = "ebb-system"  # etcd and the controller's


def refusal(template: Mapping[str, Any], priority_class: str | None) -> str:
    """The reason why no pod may be made of this template; `priority_class` is the job's own."""
    pod = template.get("spec") or {}
    return next((text for text in (_account(pod), _machine(pod), _priority(pod, priority_class)) if text), "")


def _account(pod: Mapping[str, Any]) -> str:
    for field in ("serviceAccountName", "serviceAccount"):  # the second is the first one's old name
        if pod.get(field) not in (None, "", ACCOUNT):
            return (
                f"{POD}.{field} {pod[field]!r} is refused: whoever may submit jobs would get the rights of that account. "
                f"Remove it; workers run as {ACCOUNT!r} of their namespace."
            )
    return ""


def _machine(pod: Mapping[str, Any]) -> str:
    if pod.get("nodeName"):
        return (
            f"{POD}.nodeName {pod['nodeName']!r} is refused: it goes past the scheduler, and so past taints and what is free. "
            "Remove it, and choose machines by spec.placement or nodeSelector."
        )
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            return f"{POD}.{field} {pod[field]!r} is refused: workers do not share namespaces with their machine. Remove it."
    if (pod.get("nodeSelector") or {}).get(LABEL_NODE_GROUP) == MANAGER_GROUP:
        return (
            f"{POD}.nodeSelector {LABEL_NODE_GROUP}={MANAGER_GROUP!r} is refused: that machine is for the platform. "
            "Name another node group, or remove it."
        )
    return ""


def _priority(pod: Mapping[str, Any], priority_class: str | None) -> str:
    for field, name in (("spec.priorityClassName", priority_class), (f"{POD}.priorityClassName", pod.get("priorityClassName"))):
        if name and (str(name).startswith(SYSTEM_CLASSES) or name == PLATFORM_CLASS):
            return (
                f"{field} {name!r} is refused: such workers would push the platform and the machines' own agents off. "
                "Use 'ebb-job', or none."
            )
    return ""


def worker_container(containers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The container that trains: the one of the contract's name, else the first."""
    return next((container for container in containers if container.get("name") == WORKER_CONTAINER), containers[0])
