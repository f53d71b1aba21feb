"""A Kubernetes object as the stand-in sees it: its kind, its name, and which of its fields are the stack's business. Pure.

The rule behind all of it: the stack owns the fields that its program sets, and no others. What the API server made of them right
after they were written (it rewrites "1000m" to "1", and drops empty lists) is kept in the state under MARK. A field has drifted
when it no longer looks as it did then; so no knowledge of the server's spellings and defaults is needed.
"""

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from devcluster.pulumi.stand_in import MARK
from ebb.kube import Object

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""What the engine sends in a preview for a value that only the update will know (pulumi.runtime.rpc.UNKNOWN)."""
SCHEMA = "1"

AUTONAMED = "pulumi.com/autonamed"
SKIP_AWAIT = "pulumi.com/skipAwait"
TIMEOUT_SECONDS = "pulumi.com/timeoutSeconds"
PROPAGATION = "pulumi.com/deletionPropagationPolicy"

# Of Kubernetes' own kinds that we may meet, those without a namespace; kinds of other groups are looked up in the cluster.
CLUSTER_SCOPED = frozenset(
    (
        *("Namespace", "Node", "PersistentVolume", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"),
        *("StorageClass", "CSIDriver", "PriorityClass", "RuntimeClass", "IngressClass", "APIService", "VolumeAttachment"),
        *("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy"),
        *("ValidatingAdmissionPolicyBinding", "FlowSchema", "PriorityLevelConfiguration"),
    )
)
# A list of objects that all have one of these keys is a map by it, as server-side apply sees it; others are compared as a whole.
LIST_KEYS = ("name", "mountPath", "topologyKey")
SERVERS_METADATA = frozenset(
    (
        *("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp"),
        *("deletionGracePeriodSeconds", "ownerReferences", "finalizers"),
    )
)


class Unsupported(ValueError):
    """The stand-in does not serve this type; the message says what to do."""


@dataclass(frozen=True)
class Kind:
    """A kind as a type token names it; group "" is the core group."""

    group: str
    version: str
    name: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def own(self) -> bool:
        """It is one of Kubernetes' own, so that its scope is known without asking."""
        return "." not in self.group or self.group.endswith(".k8s.io")

    def __str__(self) -> str:
        return f"{self.api_version} {self.name}"


def kind_of(token: str) -> Kind:
    """The kind of a type token such as kubernetes:apps/v1:Deployment. Raises Unsupported."""
    package, _, rest = token.partition(":")
    where, _, name = rest.partition(":")
    group, _, version = where.partition("/")
    bundle = group in ("helm.sh", "yaml", "kustomize") or name.endswith(("List", "Patch"))
    if package != "kubernetes" or not version or not name or bundle:
        raise Unsupported(
            f"{token} is more than a plain Kubernetes resource, and the stand-in serves only those: declare the objects one by "
            "one, or install the official plugin (docs/pulumi-stand-in.md)."
        )
    return Kind("" if group == "core" else group, version, name)


def metadata(value: Mapping[str, Any]) -> Object:
    """The metadata of inputs, outputs or a live object; {} while a preview does not know them."""
    found = value.get("metadata")
    return found if isinstance(found, dict) else {}


def annotation(value: Mapping[str, Any], key: str) -> str:
    notes = metadata(value).get("annotations")
    return str(notes.get(key, "")) if isinstance(notes, dict) else ""


def checked(kind: Kind, inputs: Object, old: Object, *, urn_name: str, seed: bytes, namespace: str | None) -> Object:
    """Inputs with everything filled in that the object's identity needs: apiVersion, kind, name, namespace.

    An object whose program gives no name is called by its resource's name and a suffix, and keeps that name as long as it lives;
    the annotation AUTONAMED marks such a name, not one that was given. `namespace` None: the kind has none (or nobody knows).
    """
    result = {"apiVersion": kind.api_version, "kind": kind.name} | {k: v for k, v in inputs.items() if k != "status"}
    if inputs.get("metadata") == UNKNOWN:
        return result
    meta = dict(metadata(inputs))
    if not meta.get("name") and not meta.get("generateName"):
        kept = metadata(old).get("name") if annotation(old, AUTONAMED) else None
        meta["name"] = kept or f"{urn_name}-{seed.hex()[:8]}"
        meta["annotations"] = {**(meta.get("annotations") or {}), AUTONAMED: "true"}
    if namespace and not meta.get("namespace"):
        meta["namespace"] = namespace
    return {**result, "metadata": meta}


def keeping(inputs: Object, live: Object, ignored: Iterable[str]) -> Object:
    """Inputs with what `live` has at the paths that ignore_changes names, where both have something there: an update of other
    fields must not bring old values back. (The official plugin does the same.)"""
    result = copy.deepcopy(inputs)
    for path in ignored:
        *steps, last = path.split(".")
        ours, theirs = result, live
        for step in steps:
            ours, theirs = ours.get(step, {}), theirs.get(step, {})
        if last in ours and last in theirs:
            ours[last] = theirs[last]
    return result


def manager(urn: str) -> str:
    """The field manager of a resource. One each: what was renamed in the program must not pass for an interrupted update's."""
    return f"ebb-pulumi-{hashlib.sha256(urn.encode()).hexdigest()[:12]}"


def identity(live: Mapping[str, Any]) -> str:
    """The resource's id, as the official plugin writes it: namespace/name, or name alone."""
    meta = metadata(live)
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def split_identity(resource_id: str) -> tuple[str | None, str]:
    """(namespace, name) of an id."""
    namespace, _, name = resource_id.rpartition("/")
    return namespace or None, name


def state(inputs: Object, live: Object) -> Object:
    """The state kept of an object that was just written: its lasting fields, and how the server spells those that we set."""
    return {**visible(live), MARK: {"schema": SCHEMA, "applied": projection(live, inputs)}}


def visible(live: Object) -> Object:
    """The fields that do not change by themselves: a refresh of an untouched object finds nothing."""
    meta = {k: v for k, v in metadata(live).items() if k not in ("managedFields", "resourceVersion", "generation")}
    kept = {**{k: v for k, v in live.items() if k != "status"}, "metadata": meta}
    if live.get("kind") == "Service" and "status" in live:
        kept["status"] = live["status"]  # the address of a load balancer: programs export it
    return kept


def projection(live: Any, wanted: Any) -> Any:
    """The part of `live` that `wanted` speaks of."""
    if isinstance(live, dict) and isinstance(wanted, dict):
        return {key: projection(live[key], value) for key, value in wanted.items() if key in live}
    if isinstance(live, list) and isinstance(wanted, list):
        return _items(live, wanted)
    return live


def _items(live: list[Any], wanted: list[Any]) -> list[Any]:
    key = list_key(wanted)
    if key:
        by_key = {item[key]: item for item in live if isinstance(item, dict) and key in item}
        return [projection(by_key[item[key]], item) for item in wanted if item[key] in by_key]
    if len(live) == len(wanted):
        return [projection(one, other) for one, other in zip(live, wanted, strict=True)]
    return live


def list_key(items: list[Any]) -> str | None:
    """The key by which a list of objects is a map, if it is one."""
    for key in LIST_KEYS:
        values = [item.get(key) if isinstance(item, dict) else None for item in items]
        if items and all(isinstance(value, str) for value in values) and len(set(values)) == len(values):
            return key
    return None


def drifted(inputs: Any, applied: Any, now: Any) -> Any:
    """The inputs as they would have to be for the object to look as it does now; the same object if nothing drifted.

    `applied` and `now` are projections of the object then and now.
    """
    if applied == now:
        return inputs
    if isinstance(inputs, dict) and isinstance(now, dict) and isinstance(applied, dict):
        return {
            key: drifted(value, applied.get(key), now.get(key))
            for key, value in inputs.items()
            if key in now or key not in applied
        }
    same_length = isinstance(inputs, list) and isinstance(applied, list) and isinstance(now, list)
    if same_length and len(inputs) == len(applied) == len(now):
        return [drifted(*triple) for triple in zip(inputs, applied, now, strict=True)]
    return now


def imported(live: Object) -> Object:
    """Inputs for an object that the state does not know yet: the fields that somebody set, not the server's defaults."""
    owners = [entry for entry in metadata(live).get("managedFields") or [] if not entry.get("subresource")]
    fields: Any = {}
    for entry in owners:
        fields = _union(fields, entry.get("fieldsV1") or {})
    chosen = _select(live, fields) if fields else dict(live)
    meta = {key: value for key, value in metadata(chosen).items() if key not in SERVERS_METADATA}
    named = {key: metadata(live)[key] for key in ("name", "namespace") if key in metadata(live)}
    rest = {key: value for key, value in chosen.items() if key not in ("status", "metadata", "apiVersion", "kind")}
    return {"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": {**meta, **named}, **rest}


def _union(one: Any, other: Any) -> Any:
    return {key: _union(one.get(key, {}), other.get(key, {})) for key in {**one, **other}}


def _select(live: Any, fields: Mapping[str, Any]) -> Any:
    """The part of `live` that a fieldsV1 tree names; a leaf is taken whole."""
    inner = {key: value for key, value in fields.items() if key != "."}
    if not inner:
        return live
    if isinstance(live, dict):
        named = {key.removeprefix("f:"): value for key, value in inner.items() if key.startswith("f:")}
        return {key: _select(value, named[key]) for key, value in live.items() if key in named}
    if isinstance(live, list):
        keyed = [(json.loads(key[2:]), value) for key, value in inner.items() if key.startswith("k:")]
        return [_select(item, value) for item in live for key, value in keyed if _has(item, key)] if keyed else live
    return live


def _has(item: Any, key: Mapping[str, Any]) -> bool:
    return isinstance(item, dict) and all(item.get(name) == value for name, value in key.items())
