"""The predicates of kube-scheduler by which a pod fits on a machine or does not, with its own words.

    misfits(pod, place)      # () if it fits, else the reasons, as in "1 Insufficient cpu" without the count

Checked in the scheduler's order, stopping at the first that fails: cordons, taints, selector and node affinity, resources.
Not checked: pod (anti-)affinity, topology spread, host ports and volumes' zones (volumes are in every zone here): a pod that only
those keep away gets one machine and goes on waiting.
Wording: kube-scheduler 1.35 (plugins tainttoleration, nodeaffinity, noderesources).
"""

from dataclasses import dataclass, field

from devcluster.cloud.records import HOST_LABEL, Node, NodeGroupObject, Pod, Requirement, Resources, Taint, Term, Toleration

TAINTED = "node(s) had untolerated taint(s)"
NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"
CORDONED = "node(s) were unschedulable"
TOO_MANY_PODS = "Too many pods"
NAME_FIELD = "metadata.name"
TRANSIENT_TAINTS = "node.kubernetes.io/"  # not-ready, unschedulable...: Kubernetes puts them on and takes them off by itself


@dataclass
class FreeMachine:
    """A machine as the packing sees it, with what is still free on it. Pods are put on it by `take`."""

    name: str  # "" for a machine that does not exist yet
    group: str
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    free: dict[str, int]
    cordoned: bool = False
    pods: list[Pod] = field(default_factory=list)

    def take(self, pod: Pod) -> None:
        """Reserve what the pod asks for."""
        self.pods.append(pod)
        for name, amount in pod.requests.items():
            self.free[name] = self.free.get(name, 0) - amount


def new_place(group: NodeGroupObject, allocatable: Resources, name: str = "") -> FreeMachine:
    """A machine of this group with nothing on it."""
    return FreeMachine(name, group.name, group.node_labels, group.taints, dict(allocatable))


def node_place(node: Node, allocatable: Resources) -> FreeMachine:
    """A machine that is a node already; what runs on it is to be taken off by the caller."""
    taints = tuple(taint for taint in node.taints if not taint.key.startswith(TRANSIENT_TAINTS))
    return FreeMachine(node.name, node.group, dict(node.labels), taints, dict(allocatable), cordoned=node.cordoned)


def misfits(pod: Pod, place: FreeMachine) -> tuple[str, ...]:
    """Why the pod cannot go there; empty if it can."""
    if place.cordoned:
        return (CORDONED,)
    if not all(_tolerated(taint, pod.tolerations) for taint in place.taints):
        return (TAINTED,)
    if not _selected(pod, place):
        return (NOT_SELECTED,)
    return tuple(
        TOO_MANY_PODS if name == "pods" else f"Insufficient {name}"
        for name, amount in sorted(pod.requests.items())
        if amount > max(0, place.free.get(name, 0))
    )


def _tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    return taint.effect == "PreferNoSchedule" or any(_tolerates(one, taint) for one in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    return toleration.operator == "Exists" or (toleration.key == taint.key and toleration.value == taint.value)


def _selected(pod: Pod, place: FreeMachine) -> bool:
    if any(place.labels.get(key) != value for key, value in pod.node_selector.items()):
        return False
    return pod.affinity is None or any(_term_matches(term, place) for term in pod.affinity)


def _term_matches(term: Term, place: FreeMachine) -> bool:
    if not term.labels and not term.fields:
        return False  # Kubernetes: a null or empty term matches nothing
    fields = {NAME_FIELD: place.labels.get(HOST_LABEL, place.name)}
    return all(_holds(one, place.labels) for one in term.labels) and all(_holds(one, fields) for one in term.fields)


def _holds(requirement: Requirement, labels: dict[str, str]) -> bool:
    value, wanted = labels.get(requirement.key), requirement.values
    match requirement.operator:
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement.operator, value, wanted)
    return False


def _compares(operator: str, value: str | None, wanted: tuple[str, ...]) -> bool:
    try:
        left, right = int(value or ""), int(wanted[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator == "Gt" else left < right
