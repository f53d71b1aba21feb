"""The mock of pulumi-resource-kubernetes: any kind, custom ones too. It knows names, and which changes need a new object.

A release of a Helm chart is held to the SDK's class; no chart is looked up, so values that a chart does not know pass. A patch is
like the object itself, but needs a name; whether there is such an object is not asked.

What replaces is the official plugin's own list (pulumi-kubernetes, provider/pkg/provider/diff.go, read 2026-11), which differs
from the API server's: a changed ConfigMap or Secret is replaced unless the provider is told enableConfigMapMutable or
enableSecretMutable, a StorageClass's binding mode and a PriorityClass's value are not. Whether an object is valid is not asked
here: a server-side dry run against a real API server is.
"""

import hashlib
from collections.abc import Mapping

from testing.pulumi.kubernetes.changes import compare
from testing.pulumi.kubernetes.objects import AUTONAMED, CLUSTER_SCOPED, Kind, Unsupported, annotation, kind_of, metadata
from testing.pulumi.mocks.package import UNKNOWN, Asked, Difference, Failure, MockError, Object, is_unknown
from testing.pulumi.mocks.rows import Reviewed, Row
from testing.pulumi.mocks.tabled import Tabled
from testing.pulumi.mocks.wheel import settings_of

SELECTOR = ("spec.selector",)
ALWAYS = ("metadata.name", "metadata.namespace", "kind")
REPLACES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("apps", "Deployment"): SELECTOR,
    ("apps", "DaemonSet"): SELECTOR,
    ("apps", "StatefulSet"): (
        *("spec.podManagementPolicy", "spec.revisionHistoryLimit", "spec.selector", "spec.serviceName"),
        "spec.volumeClaimTemplates",
    ),
    ("batch", "Job"): ("spec.completions", "spec.parallelism", "spec.selector", "spec.template"),
    ("", "PersistentVolume"): tuple(
        f"spec.{source}"
        for source in (
            *("awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "fc", "flexVolume", "flocker"),
            *("gcePersistentDisk", "glusterfs", "hostPath", "iscsi", "local", "nfs", "photonPersistentDisk", "portworxVolume"),
            *("quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume"),
        )
    ),
    ("", "PersistentVolumeClaim"): ("spec.accessModes", "spec.selector", "spec.storageClassName", "spec.volumeName"),
    ("", "ResourceQuota"): ("spec.scopes",),
    ("", "Service"): ("spec.clusterIP",),
    ("rbac.authorization.k8s.io", "RoleBinding"): ("roleRef",),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): ("roleRef",),
    ("storage.k8s.io", "StorageClass"): ("parameters", "provisioner"),
}

# provider/pkg/provider/helm_release.go of pulumi-kubernetes, Diff and Create, read 2026-11: what replaces, and the id.
RELEASE = Row("kubernetes:helm.sh/v3:Release", replaces=("name", "namespace"), autoname="", id="{namespace}/{name}")
TIMEOUT_SECONDS = 300
OCI = "oci://"
PATCH = "Patch"  # the end of the type of fields that a program sets in an object of others


class Releases(Tabled):
    """Releases of Helm charts."""

    def __init__(self) -> None:
        super().__init__("kubernetes", {RELEASE.token: RELEASE})

    def check(self, asked: Asked, inputs: Object, old: Object, seed: bytes) -> tuple[Object, list[Failure]]:
        """With the plugin's defaults (setDefaults), and a name that stays if none is given."""
        made_up = f"{asked.name}-{hashlib.sha256(asked.urn.encode()).hexdigest()[:8]}"
        defaults = {"name": old.get("name", made_up), "namespace": "default", "timeout": TIMEOUT_SECONDS}
        found, failures = super().check(asked, {**defaults, **inputs}, old, seed)
        if not str(inputs.get("chart", OCI)).startswith(OCI) and "repositoryOpts" not in inputs:
            told = f"{inputs['chart']} not found; check the chart name and repository configuration."
            failures.append(Failure("chart", told))
        return found, failures

    def own_outputs(self, row: Reviewed, given: Object) -> Object:
        same = {name: given[name] for name in ("name", "namespace", "version") if name in given}
        return {"status": {"status": "deployed", **same}}


class Objects:
    def __init__(self) -> None:
        self._config: Object = {}
        self._releases = Releases()
        self._names: dict[str, str] = {}

    def check_config(self, inputs: Object) -> list[Failure]:
        known = settings_of("pulumi_kubernetes")
        return [
            Failure(key, f"is not a setting of the provider; there are {', '.join(sorted(known))}")
            for key in inputs
            if key not in known and key != "version"
        ]

    def configure(self, inputs: Object) -> None:
        self._config = inputs

    def check(self, asked: Asked, inputs: Object, old: Object, seed: bytes) -> tuple[Object, list[Failure]]:
        if asked.token == RELEASE.token:
            return self._releases.check(asked, inputs, old, seed)
        kind = _kind(asked)
        failures = [
            Failure(key, f"is {inputs[key]!r}, and the type says {wanted!r}")
            for key, wanted in (("apiVersion", kind.api_version), ("kind", kind.name))
            if key in inputs and inputs[key] != wanted and not is_unknown(inputs[key])
        ]
        meta = inputs.get("metadata", {})
        if not isinstance(meta, dict) and not is_unknown(meta):
            failures.append(Failure("metadata", f"is {meta!r}, and must be an object"))
        elif asked.token.endswith(PATCH) and not is_unknown(meta) and not meta.get("name"):
            raise MockError("patch resources require the `.metadata.name` field to be set")
        return self._identified(kind, asked, inputs, old), failures

    def diff(self, asked: Asked, old: Object, outputs: Object, new: Object) -> Difference:
        if asked.token == RELEASE.token:
            return self._releases.diff(asked, old, outputs, new)
        changes, fixed = compare(old, new), (*ALWAYS, *self._fixed(_kind(asked), new))
        replaces = tuple(path for path in changes if any(_within(path, field) for field in fixed))
        was, now = metadata(old), metadata(new)
        stays = was.get("name") == now.get("name") and was.get("namespace") == now.get("namespace")
        return Difference(changes, replaces, bool(replaces) and stays and not annotation(new, AUTONAMED))

    def create(self, asked: Asked, inputs: Object, *, preview: bool) -> tuple[str, Object]:
        if asked.token == RELEASE.token:
            return self._releases.create(asked, inputs, preview=preview)
        uid = hashlib.sha256(f"{asked.urn}{inputs}".encode()).hexdigest()[:32]
        made = {"uid": UNKNOWN if preview else uid}
        meta = inputs.get("metadata")
        outputs = {**inputs, "metadata": {**made, **meta} if isinstance(meta, dict) else meta}
        if inputs.get("kind") == "Service":
            outputs["status"] = {"loadBalancer": {}}
        where, name = metadata(inputs).get("namespace"), metadata(inputs).get("name", "")
        return (f"{where}/{name}" if where else str(name)), outputs

    def update(self, asked: Asked, outputs: Object, old: Object, new: Object, *, preview: bool) -> Object:
        if asked.token == RELEASE.token:
            return self._releases.update(asked, outputs, old, new, preview=preview)
        kept = {"status": outputs["status"]} if "status" in outputs else {}
        return {**kept, **new, "metadata": {"uid": metadata(outputs).get("uid"), **metadata(new)}}

    def invoke(self, token: str, arguments: Object) -> Object:
        raise MockError(
            f"the mock has no function {token}: there is no cluster to ask, and no chart to render. Declare the objects."
        )

    def _identified(self, kind: Kind, asked: Asked, inputs: Object, old: Object) -> Object:
        result = {"apiVersion": kind.api_version, "kind": kind.name, **{k: v for k, v in inputs.items() if k != "status"}}
        if is_unknown(inputs.get("metadata")):
            return result
        meta = dict(metadata(inputs))
        if not meta.get("name") and not meta.get("generateName"):
            meta["name"] = self._made_up(asked, old)
            meta["annotations"] = {**(meta.get("annotations") or {}), AUTONAMED: "true"}
        if kind.own and kind.name not in CLUSTER_SCOPED and not meta.get("namespace"):
            meta["namespace"] = self._config.get("namespace") or "default"
        return {**result, "metadata": meta}

    def _made_up(self, asked: Asked, old: Object) -> str:
        """A name that stays as long as the object; its successor gets another."""
        if annotation(old, AUTONAMED):
            self._names[asked.urn] = str(metadata(old)["name"])
            return self._names[asked.urn]
        return f"{asked.name}-{hashlib.sha256((asked.urn + self._names.get(asked.urn, '')).encode()).hexdigest()[:8]}"

    def _fixed(self, kind: Kind, new: Object) -> tuple[str, ...]:
        if kind.group == "" and kind.name in ("ConfigMap", "Secret"):
            mutable = str(self._config.get(f"enable{kind.name}Mutable", "")).lower() == "true"
            content = ("data", "binaryData") if kind.name == "ConfigMap" else ("type", "stringData", "data")
            return content if not mutable or new.get("immutable") else ("type",) if kind.name == "Secret" else ()
        return REPLACES.get((kind.group, kind.name), ())


def package() -> Objects:
    return Objects()


def _kind(asked: Asked) -> Kind:
    try:
        return kind_of(asked.token.removesuffix(PATCH))
    except Unsupported:
        raise MockError(
            f"{asked.token} is more than a plain Kubernetes object: the stack declares its objects one by one."
        ) from None


def _within(path: str, field: str) -> bool:
    return path == field or path.startswith((field + ".", field + "["))
