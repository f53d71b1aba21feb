"""The differences between old and new inputs, and which of them only a new object can bring. Pure.

    changes = compare(old_inputs, new_inputs)                  # {"spec.replicas": "update", ...}
    replacing(kind, changes, new_inputs)                       # ["spec.selector.matchLabels.app"]

Drift needs no place here: a refresh writes it into the old inputs (objects.drifted).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from ebb.kube import Object
from testing.pulumi.kubernetes.objects import AUTONAMED, UNKNOWN, Kind, annotation

Change = Literal["add", "delete", "update"]
IDENTITY = ("kind", "metadata.name", "metadata.namespace")

# Fields that the API server refuses to change. Source: pkg/apis/*/validation of Kubernetes 1.35, "field is immutable".
IMMUTABLE: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("apps", "Deployment"): ("spec.selector",),
    ("apps", "DaemonSet"): ("spec.selector",),
    ("apps", "StatefulSet"): ("spec.selector", "spec.serviceName", "spec.podManagementPolicy", "spec.volumeClaimTemplates"),
    ("batch", "Job"): ("spec.selector", "spec.template", "spec.completions", "spec.completionMode"),
    ("", "PersistentVolumeClaim"): (
        "spec.accessModes",
        "spec.storageClassName",
        "spec.volumeName",
        "spec.volumeMode",
        "spec.selector",
    ),
    ("", "Secret"): ("type",),
    ("", "Service"): ("spec.clusterIP",),
    ("rbac.authorization.k8s.io", "RoleBinding"): ("roleRef",),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): ("roleRef",),
    ("scheduling.k8s.io", "PriorityClass"): ("value", "preemptionPolicy"),
    ("storage.k8s.io", "StorageClass"): ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): ("spec.group", "spec.scope", "spec.names.plural", "spec.names.kind"),
}
FREEZABLE = (("", "ConfigMap"), ("", "Secret"))  # with `immutable: true`, their content cannot change


def compare(old: Any, new: Any) -> dict[str, Change]:
    """Paths, in Pulumi's notation, of the leaves that differ; a value that a preview does not know counts as different."""
    return dict(_differences("", old, new))


def _differences(path: str, old: Any, new: Any) -> Iterator[tuple[str, Change]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            yield from _sides(_key(path, key), old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            yield from _sides(f"{path}[{index}]", _at(old, index), _at(new, index))
    elif old != new or new == UNKNOWN:
        yield path, "update"


def _sides(path: str, old: Any, new: Any) -> Iterator[tuple[str, Change]]:
    """None and absent are the same to Kubernetes."""
    if old is None and new is None:
        return
    if old is None:
        yield path, "add"
    elif new is None:
        yield path, "delete"
    else:
        yield from _differences(path, old, new)


def _at(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else None


def _key(path: str, key: str) -> str:
    if not re.fullmatch(r"[A-Za-z_$][\w$]*", key):
        return f'{path}["{key}"]'
    return f"{path}.{key}" if path else key


def replacing(kind: Kind, changes: Mapping[str, Change], old: Object, new: Object) -> list[str]:
    """The changed paths that need a new object."""
    fixed = list(IDENTITY) + list(IMMUTABLE.get((kind.group, kind.name), ()))
    if (kind.group, kind.name) in FREEZABLE and old.get("immutable") and new.get("immutable"):
        fixed += ["data", "binaryData", "stringData"]
    group_moved = _group(old.get("apiVersion")) != _group(new.get("apiVersion"))
    fixed += ["apiVersion"] if group_moved else []
    return [path for path in changes if any(_within(path, field) for field in fixed)]


def _group(api_version: object) -> str:
    return str(api_version or "").rpartition("/")[0]


def _within(path: str, field: str) -> bool:
    return path == field or path.startswith((field + ".", field + "["))


def delete_first(old: Object, new: Object) -> bool:
    """A new object of the same name can only come after the old one has gone; an autonamed one gets a new name."""
    return not annotation(new, AUTONAMED) or annotation(old, AUTONAMED) != annotation(new, AUTONAMED)
