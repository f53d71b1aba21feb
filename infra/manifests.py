"""Kubernetes objects from YAML files as resources: the CRD, the RBAC rules and the controller, whose texts workloads/ owns.

    declared = declare(read("rbac.yaml"), options, images={"controller": image})

An image whose name in the file is a key of `images` is replaced. Kinds are listed one by one: a new one is an error, not a guess.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pulumi
import yaml
from pulumi_kubernetes.apiextensions.v1 import CustomResourceDefinition
from pulumi_kubernetes.apps.v1 import Deployment
from pulumi_kubernetes.core.v1 import ConfigMap, Service, ServiceAccount
from pulumi_kubernetes.policy.v1 import PodDisruptionBudget
from pulumi_kubernetes.rbac.v1 import ClusterRole, ClusterRoleBinding, Role, RoleBinding

FOLDER = Path(__file__).resolve().parent.parent / "workloads" / "manifests"
Document = dict[str, Any]
Images = Mapping[str, pulumi.Input[str]]

# Kind -> how its resource is made; the fields beside metadata that we use of it.
_KINDS: Mapping[str, tuple[Callable[..., pulumi.Resource], Mapping[str, str]]] = {
    "ClusterRole": (ClusterRole, {"rules": "rules"}),
    "ClusterRoleBinding": (ClusterRoleBinding, {"roleRef": "role_ref", "subjects": "subjects"}),
    "ConfigMap": (ConfigMap, {"data": "data"}),
    "CustomResourceDefinition": (CustomResourceDefinition, {"spec": "spec"}),
    "Deployment": (Deployment, {"spec": "spec"}),
    "PodDisruptionBudget": (PodDisruptionBudget, {"spec": "spec"}),
    "Role": (Role, {"rules": "rules"}),
    "RoleBinding": (RoleBinding, {"roleRef": "role_ref", "subjects": "subjects"}),
    "Service": (Service, {"spec": "spec"}),
    "ServiceAccount": (ServiceAccount, {"automountServiceAccountToken": "automount_service_account_token"}),
}


class ManifestError(pulumi.RunError):
    """A file of workloads/manifests is missing, or holds what this program does not know how to declare."""


def read(name: str, folder: Path = FOLDER) -> list[Document]:
    """The objects in a file. Raises ManifestError."""
    try:
        return [document for document in yaml.safe_load_all((folder / name).read_text()) if document]
    except FileNotFoundError:
        raise ManifestError(f"{folder / name} is missing: run `make manifests`, or check the file out again") from None
    except yaml.YAMLError as error:
        raise ManifestError(f"{folder / name} is not YAML: {error}") from error


def placed(documents: Iterable[Document], place: Document) -> list[Document]:
    """The objects, with `place` (a node selector, a priority) in the pods of every Deployment: files know no node groups."""
    result = []
    for document in documents:
        if document["kind"] == "Deployment":
            template = document["spec"]["template"]
            template = {**template, "spec": {**template["spec"], **place}}
            result.append({**document, "spec": {**document["spec"], "template": template}})
        else:
            result.append(document)
    return result


def declare(
    documents: Iterable[Document], options: pulumi.ResourceOptions, *, images: Images | None = None
) -> list[pulumi.Resource]:
    """One resource for each object, all with the same options. Raises ManifestError."""
    return [_declare(document, options, images or {}) for document in documents]


def _declare(document: Document, options: pulumi.ResourceOptions, images: Images) -> pulumi.Resource:
    kind, name = document["kind"], document["metadata"]["name"]
    if kind not in _KINDS:
        raise ManifestError(f"{kind} {name}: infra/manifests.py declares {', '.join(_KINDS)}; add the kind there")
    make, fields = _KINDS[kind]
    unknown = set(document) - {"apiVersion", "kind", "metadata", *fields}
    if unknown:
        raise ManifestError(f"{kind} {name}: infra/manifests.py does not pass on {', '.join(sorted(unknown))}; add it there")
    values = {argument: with_images(document[field], images) for field, argument in fields.items() if field in document}
    return make(f"{_dashed(kind)}-{name}", metadata=document["metadata"], opts=options, **values)


def with_images(value: Any, images: Images) -> Any:
    """A copy in which every `image:` that names a key of `images` is the image of that key."""
    if isinstance(value, dict):
        return {
            key: images.get(item, item) if key == "image" and isinstance(item, str) else with_images(item, images)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [with_images(item, images) for item in value]
    return value


def _dashed(kind: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in kind).lstrip("-")
