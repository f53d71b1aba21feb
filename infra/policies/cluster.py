"""Rules of what a stack makes in Kubernetes, on every cloud.

Researchers' jobs are not resources of a stack: Pod Security and the admission policies of workloads/manifests judge those.
"""

import json
from collections.abc import Iterable, Iterator

from infra.config.model import Stack
from infra.policies.rules import UNKNOWN, Declaration, Rule, Violation, required, same

EVERYTHING = "*"
INSIDE = ("ClusterIP", "ExternalName")
OF_DEVICES = "kube-system"
PODS = ("spec.jobTemplate.spec.template.spec", "spec.template.spec")
CONFINED = {
    "privileged": False,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile.type": "RuntimeDefault",
}
AS_ROOT = "prepare-storage"  # makes folders in the root of a new file system, which is root's alone


def _service(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    """No port of a machine, no address on the internet."""
    kind = declaration.get("spec.type", "ClusterIP")
    fix = "reach it with `ebb port` or `kubectl port-forward`, which ask the API server who you are"
    if kind not in (*INSIDE, UNKNOWN):
        yield Violation(property="spec.type", found=kind, allowed=" or ".join(INSIDE), fix=fix)
    if declaration.get("spec.externalIPs"):
        found = declaration.get("spec.externalIPs")
        yield Violation(property="spec.externalIPs", found=found, allowed="no address", fix=fix)


def _entry(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    yield Violation(
        property="kind", found=declaration.type.rpartition(":")[2], allowed="no way in from outside of the cluster",
        fix="remove it, and reach the Service with `kubectl port-forward`",
    )  # fmt: skip


def _rights(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    """No wildcard: who may do what is written out, so that a new kind is nobody's before somebody has thought of it."""
    for path in declaration.each("rules"):
        for key in ("verbs", "resources", "apiGroups", "nonResourceURLs"):
            found = declaration.get(f"{path}.{key}", ())
            if found != UNKNOWN and EVERYTHING in found:
                yield Violation(
                    property=f"{path}.{key}", found=found, allowed="a list without *",
                    fix="list what the account needs: workloads/manifests/rbac.yaml has examples",
                )  # fmt: skip


def _administrator(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    if declaration.get("roleRef.name") == "cluster-admin":
        yield Violation(
            property="roleRef.name", found="cluster-admin", allowed="a role that lists its rights",
            fix="make one in workloads/manifests/rbac.yaml and bind that",
        )  # fmt: skip


def _volume(declaration: Declaration, stack: Stack) -> Iterable[Violation]:
    """Of a removed claim the volume stays, and with it the data; the cloud's own resource says what a destroy does."""
    return required(
        declaration,
        {"spec.persistentVolumeReclaimPolicy": "Retain"},
        "make it by infra/volumes.py, or say Retain: Delete would end the data with the claim",
    )


def _pods(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    """No container may become more than it is. Those that hand out devices are in kube-system and need folders of their machine;
    what they must not have, workloads/helpers.py says of each."""
    if declaration.get("metadata.namespace") in (OF_DEVICES, UNKNOWN):
        return
    inside = next((one for one in PODS if declaration.get(one) is not None), "")
    outer = f"{inside}.securityContext"
    for kind in ("initContainers", "containers"):
        for path in declaration.each(f"{inside}.{kind}"):
            for key, value in CONFINED.items():
                if key == "runAsNonRoot" and declaration.name == AS_ROOT:
                    continue
                found = declaration.get(f"{path}.securityContext.{key}", declaration.get(f"{outer}.{key}"))
                if found != UNKNOWN and not same(found if key != "privileged" else bool(found), value):
                    yield Violation(
                        property=f"{path}.securityContext.{key}", found=found, allowed=json.dumps(value),
                        fix="make the pod by workloads/pods.py, whose containers have it",
                    )  # fmt: skip


RULES: tuple[Rule, ...] = (
    Rule(
        name="cluster-no-way-in",
        title="Services are reached from inside the cluster alone",
        types=("kubernetes:core/v1:Service",),
        check=_service,
    ),
    Rule(
        name="cluster-no-ingress",
        title="Nothing in the cluster is served to the world",
        types=("kubernetes:networking.k8s.io/*:Ingress", "kubernetes:gateway.networking.k8s.io/*"),
        check=_entry,
    ),
    Rule(
        name="cluster-no-wildcard",
        title="Roles list what they allow",
        types=("kubernetes:rbac.authorization.k8s.io/*:*Role",),
        check=_rights,
    ),
    Rule(
        name="cluster-no-administrator",
        title="No account of the platform is the cluster's administrator",
        types=("kubernetes:rbac.authorization.k8s.io/*:*RoleBinding",),
        check=_administrator,
    ),
    Rule(
        name="cluster-data-kept",
        title="Volumes outlive their claims",
        types=("kubernetes:core/v1:PersistentVolume",),
        check=_volume,
    ),
    Rule(
        name="cluster-pods",
        title="Containers of the platform are confined",
        types=("kubernetes:apps/v1:*", "kubernetes:batch/v1:*"),
        check=_pods,
    ),
)
