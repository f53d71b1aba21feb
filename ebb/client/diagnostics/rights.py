"""What a user must be allowed so that every verb works, and whether they are: one SelfSubjectAccessReview for each right.

    for right in await missing(kube, "elastic-job"): print(right.text, right.verbs)

The table is what manifests/researcher.yaml gives; a test compares them. Anybody may ask about themselves.
"""

import asyncio
from dataclasses import dataclass

from ebb.api import contract as names
from ebb.api import platform
from ebb.kube import Kube, KubeError, Object

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@dataclass(frozen=True, kw_only=True)
class Right:
    """One thing that may be done, and the verbs of `ebb` that need it."""

    verb: str
    resource: str  # with its subresource: pods/log
    verbs: tuple[str, ...]
    group: str = ""
    place: str = ""  # a namespace; "": that of the jobs; "*": the whole cluster
    name: str = ""
    needed: bool = True  # without it the verbs fail; else they only say less

    @property
    def text(self) -> str:
        return f"{self.verb} {self.resource}{f' {self.name}' if self.name else ''}"


def _jobs(verb: str, *verbs: str) -> Right:
    return Right(verb=verb, resource=names.PLURAL, group=names.GROUP, verbs=verbs)


RIGHTS: tuple[Right, ...] = (
    Right(verb="get", resource="configmaps", place=platform.NAMESPACE, name=platform.NAME, verbs=("every verb",)),
    _jobs("get", "status", "logs", "wait"),
    _jobs("list", "list", "top"),
    _jobs("watch", "status --watch", "logs -f", "wait"),
    _jobs("create", "submit", "sweep"),
    _jobs("patch", "scale", "stop", "resume"),
    _jobs("delete", "delete"),
    Right(verb="list", resource="pods", verbs=("status", "logs", "top")),
    Right(verb="watch", resource="pods", verbs=("status --watch", "logs -f")),
    Right(verb="get", resource="pods/log", verbs=("logs",)),
    Right(verb="list", resource="events", verbs=("events",)),
    Right(verb="watch", resource="events", verbs=("events -f",)),
    Right(verb="list", resource="configmaps", verbs=("cost", "list")),
    Right(verb="create", resource="configmaps", verbs=("submit --code",)),
    Right(verb="create", resource="pods/exec", verbs=("exec",)),
    Right(verb="create", resource="pods/portforward", verbs=("port", "data", "outputs", "report")),
    Right(verb="list", resource="nodes", place="*", verbs=("status", "top", "gpus"), needed=False),
)


async def missing(kube: Kube, namespace: str) -> tuple[Right, ...]:
    """Those of RIGHTS that one does not have. Raises KubeError where nobody can be asked."""
    allowed = await asyncio.gather(*(_allowed(kube, right, namespace) for right in RIGHTS))
    return tuple(right for right, has in zip(RIGHTS, allowed, strict=True) if not has)


async def user_name(kube: Kube) -> str:
    """Who one is to the API server; "" where it does not say."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        found = await kube.request("POST", WHO, body=body)
    except KubeError:
        return ""
    return str(((found.get("status") or {}).get("userInfo") or {}).get("username") or "")


async def _allowed(kube: Kube, right: Right, namespace: str) -> bool:
    resource, _, subresource = right.resource.partition("/")
    asked: Object = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "name": right.name,
    }
    if right.place != "*":
        asked["namespace"] = right.place or namespace
    spec = {"resourceAttributes": {key: value for key, value in asked.items() if value}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    answer = await kube.request("POST", REVIEWS, body=body)
    return bool((answer.get("status") or {}).get("allowed"))
