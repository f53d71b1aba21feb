"""Kubernetes objects from YAML files as resources: what `kubectl apply -k workloads/manifests` installs without a stack.

    declared = declare(read("rbac.yaml"), options, images={"controller": image})

An image whose name in the file is a key of `images` is replaced. Kinds are listed one by one: a new one is an error, not a guess.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pulumi
import yaml
from pulumi_kubernetes.admissionregistration.v1 import ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding
from pulumi_kubernetes.apiextensions.v1 import CustomResourceDefinition
from pulumi_kubernetes.apps.v1 import DaemonSet, Deployment, StatefulSet
from pulumi_kubernetes.batch.v1 import CronJob, Job
from pulumi_kubernetes.core.v1 import ConfigMap, Namespace, ResourceQuota, Secret, Service, ServiceAccount
from pulumi_kubernetes.policy.v1 import PodDisruptionBudget
from pulumi_kubernetes.rbac.v1 import ClusterRole, ClusterRoleBinding, Role, RoleBinding
from pulumi_kubernetes.scheduling.v1 import PriorityClass

FOLDER = Path(__file__).resolve().parent / "manifests"
LEGACY = FOLDER / "legacy"
CHANGED: Final = "ebb.dev/config"  # an annotation of a pod, which renewed_by() writes
# YAML's C parser where it is there: it reads the files of a stack in a tenth of the time, at every `up`.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Document = dict[str, Any]
Images = Mapping[str, pulumi.Input[str]]

# Kind -> how its resource is made; the fields beside metadata that we use of it.
_KINDS: Mapping[str, tuple[Callable[..., pulumi.Resource], Mapping[str, str]]] = {
    "ClusterRole": (ClusterRole, {"rules": "rules"}),
    "ClusterRoleBinding": (ClusterRoleBinding, {"roleRef": "role_ref", "subjects": "subjects"}),
    "ConfigMap": (ConfigMap, {"data": "data"}),
    "CronJob": (CronJob, {"spec": "spec"}),
    "CustomResourceDefinition": (CustomResourceDefinition, {"spec": "spec"}),
    "DaemonSet": (DaemonSet, {"spec": "spec"}),
    "Deployment": (Deployment, {"spec": "spec"}),
    "Job": (Job, {"spec": "spec"}),
    "Namespace": (Namespace, {}),
    "PodDisruptionBudget": (PodDisruptionBudget, {"spec": "spec"}),
    "PriorityClass": (
        PriorityClass,
        {
            "value": "value",
            "globalDefault": "global_default",
            "preemptionPolicy": "preemption_policy",
            "description": "description",
        },
    ),
    "ResourceQuota": (ResourceQuota, {"spec": "spec"}),
    "Role": (Role, {"rules": "rules"}),
    "RoleBinding": (RoleBinding, {"roleRef": "role_ref", "subjects": "subjects"}),
    "Secret": (Secret, {"type": "type"}),
    "Service": (Service, {"spec": "spec"}),
    "ServiceAccount": (ServiceAccount, {"automountServiceAccountToken": "automount_service_account_token"}),
    "StatefulSet": (StatefulSet, {"spec": "spec"}),
    "ValidatingAdmissionPolicy": (ValidatingAdmissionPolicy, {"spec": "spec"}),
    "ValidatingAdmissionPolicyBinding": (ValidatingAdmissionPolicyBinding, {"spec": "spec"}),
}
# What comes before an object's name in its resource's, where it is not the kind. A resource that got another name would be
# deleted and made again in the stacks that have it: etcd in the middle of jobs.
_PREFIXES: Mapping[str, str] = {"CronJob": "", "PriorityClass": "priority-", "StatefulSet": ""}


class ManifestError(pulumi.RunError):
    """A file of workloads/manifests is missing, or holds what this program does not know how to declare."""


def read(name: str, folder: Path = FOLDER) -> list[Document]:
    """The objects in a file. Raises ManifestError."""
    try:
        return [document for document in yaml.load_all((folder / name).read_text(), _LOADER) if document]
    except FileNotFoundError:
        raise ManifestError(f"{folder / name} is missing: run `make manifests`, or check the file out again") from None
    except yaml.YAMLError as error:
        raise ManifestError(f"{folder / name} is not YAML: {error}") from error


def pinned(image: str, folder: Path = FOLDER) -> str:
    """The public image that the kustomization of a folder says for a placeholder of its files. Raises ManifestError."""
    for one in read("kustomization.yaml", folder)[0]["images"]:
        if one["name"] == image:
            return f"{one['newName']}:{one['newTag']}"
    raise ManifestError(f"{folder / 'kustomization.yaml'} names no image for {image!r}: restore the file from the repository")


def placed(documents: Iterable[Document], place: Document) -> list[Document]:
    """The objects, with `place` (a node selector, a volume) in all pods that they make: files know no node groups."""
    return [{**one, "spec": _with_pod(one["spec"], place)} if "spec" in one else one for one in documents]


def _with_pod(spec: Document, place: Document) -> Document:
    """The spec of a workload (or of what is none) with `place` in its pod's spec."""
    if "jobTemplate" in spec:
        return {**spec, "jobTemplate": {**spec["jobTemplate"], "spec": _with_pod(spec["jobTemplate"]["spec"], place)}}
    if "template" not in spec:
        return spec
    template = spec["template"]
    return {**spec, "template": {**template, "spec": {**template["spec"], **place}}}


def renewed_by(workload: Document, files: Mapping[str, str]) -> Document:
    """The workload, whose pods are others, which read them, for other files."""
    digest = hashlib.sha256()
    for name, text in sorted(files.items()):
        digest.update(f"{name}\0{text}\0".encode())
    spec = workload["spec"]
    metadata = {**spec["template"]["metadata"], "annotations": {CHANGED: digest.hexdigest()[:16]}}
    return {**workload, "spec": {**spec, "template": {**spec["template"], "metadata": metadata}}}


def declare(
    documents: Iterable[Document], options: pulumi.ResourceOptions, *, images: Images | None = None, within: str = ""
) -> list[pulumi.Resource]:
    """One resource for each object, all with the same options. `within`: a namespace whose objects have the names of those in
    another. Raises ManifestError."""
    return [_declare(document, options, images or {}, within) for document in documents]


def _declare(document: Document, options: pulumi.ResourceOptions, images: Images, within: str) -> pulumi.Resource:
    kind, name = document["kind"], document["metadata"]["name"]
    if kind not in _KINDS:
        raise ManifestError(f"{kind} {name}: workloads/manifest.py declares {', '.join(_KINDS)}; add the kind there")
    make, fields = _KINDS[kind]
    unknown = set(document) - {"apiVersion", "kind", "metadata", *fields}
    if unknown:
        raise ManifestError(f"{kind} {name}: workloads/manifest.py does not pass on {', '.join(sorted(unknown))}; add it there")
    values = {argument: with_images(document[field], images) for field, argument in fields.items() if field in document}
    prefix = _PREFIXES.get(kind, f"{_dashed(kind)}-") + (f"{within}-" if within else "")
    return make(f"{prefix}{name}", metadata=document["metadata"], opts=options, **values)


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
