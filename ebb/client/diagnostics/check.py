"""Checks of `ebb check`: everything between this machine and the jobs, from the kubeconfig to the gateway.

    for finding in await check(): print(finding.level, finding.name, finding.text, finding.fix)

Each finding is ok, a warning (it works, but), a problem (something does not work), or unseen (one may not look). Warnings and
problems say what to do. Nothing is changed, and nothing is sent but questions: one SelfSubjectAccessReview for each right that a
verb needs. The table of rights is what manifests/researcher.yaml gives; a test compares them.

It goes from the outside inwards and stops where going on makes no sense. symptoms.py judges what was read.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TypeVar

from ebb.api import contract as names
from ebb.api import platform
from ebb.api.platform import NAMESPACE as SYSTEM
from ebb.api.platform import SCHEMA, WHERE, Platform, PlatformError
from ebb.client.diagnostics import symptoms
from ebb.client.diagnostics.symptoms import PROBLEM, Finding, ok, problem, unseen, warning
from ebb.client.errors import BadRequest, Missing, NoPlatform
from ebb.client.platform.connection import Opener, find_namespace, find_owner, find_way, read_platform
from ebb.kube import (
    CLAIMS,
    ELASTIC_JOBS,
    EVENTS,
    LEASES,
    NAMESPACES,
    PODS,
    Denied,
    Kube,
    KubeconfigError,
    KubeError,
    NotFound,
    Object,
    Resource,
    Unreachable,
)

T = TypeVar("T")
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
LEASE = "ebb-controller"
OLDEST = (1, 30)  # of Kubernetes: the platform's rules are a ValidatingAdmissionPolicy, which is there for good since 1.30
REPAIR = "run `pulumi up` on the stack, or ask the platform's owner to"


async def check(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    namespace: str | None = None,
    platform: str | None = None,
    team: str | None = None,
    opener: Opener = Kube.connect,
    clock: Callable[[], float] = time.time,
) -> tuple[Finding, ...]:
    """All findings, in the order of the questions. Raises nothing that a user can cause."""
    findings: list[Finding] = []
    async with AsyncExitStack() as opened:
        try:
            way = find_way(kubeconfig, context, platform)
            kube = await opened.enter_async_context(opener(way.kubeconfig, way.context))
        except (Missing, NoPlatform, KubeconfigError) as error:
            return (problem("kubeconfig", *_split(error)),)
        named = f", that of platform {way.platform}" if way.platform else ""
        findings.append(ok("kubeconfig", f"{way.kubeconfig}{named}" if way.kubeconfig else "the pod's own service account"))
        findings += await _server(kube)
        if findings[-1].level == PROBLEM:
            return tuple(findings)
        found, finding = await _platform(kube)
        try:
            where = namespace or (await find_namespace(kube, found, team) if found else "elastic-job")
        except (Missing, BadRequest) as error:
            return (*findings, finding, problem("team", *_split(error)))
        found = found.seen_from(where) if found else None
        findings += [finding, await _rights(kube, where), await _kind(kube)]
        if found is not None:
            findings += await _inside(kube, found, where, clock())
    return tuple(findings)


async def _server(kube: Kube) -> list[Finding]:
    """Return whether the API server answers, how old it is, and as whom one gets in."""
    try:
        version = await kube.request("GET", "/version")
        who = await user_name(kube)
        await kube.request("GET", "/api/v1")  # /version answers strangers too
    except Unreachable as error:
        fix = "Is the cluster up, and the VPN or network of this machine? The address is in the kubeconfig."
        return [problem("api server", str(error), fix)]
    except Denied as error:
        fix = "Log in again as the kubeconfig's user does, or ask the platform's owner for a new kubeconfig."
        return [problem("api server", f"{kube.server} does not know you: {error}", fix)]
    except KubeError as error:
        return [problem("api server", f"{kube.server}: {error}", "Try again; ask the platform's owner if it stays.")]
    text = f"Kubernetes {version.get('gitVersion', '?')} at {kube.server}{f', as {who}' if who else ''}"
    digits = ["".join(filter(str.isdigit, str(version.get(key, "0")))) or "0" for key in ("major", "minor")]
    if (int(digits[0]), int(digits[1])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return [warning("api server", text, f"Ebb needs Kubernetes {oldest} or newer: upgrade the cluster.")]
    return [ok("api server", text)]


async def _platform(kube: Kube) -> tuple[Platform | None, Finding]:
    try:
        found = await read_platform(kube)
    except (NoPlatform, PlatformError) as error:
        return None, problem("platform", *_split(error))
    except KubeError as error:
        return None, problem("platform", f"{WHERE} cannot be read: {error}", rights_fix())
    place = " ".join(dict.fromkeys((found.stack, found.cloud, found.region)))
    return found, ok("platform", f"stack {place}, schema {SCHEMA} as this `ebb` reads it")


async def _rights(kube: Kube, namespace: str) -> Finding:
    try:
        lacking = await missing(kube, namespace)
    except KubeError as error:
        return warning("rights", f"cannot be asked for: {error}", "Ask the platform's owner which rights you have.")
    if not lacking:
        return ok("rights", f"all that the verbs need in {namespace}")
    told = "; ".join(f"{right.text} ({', '.join(right.verbs)})" for right in lacking)
    make = problem if any(right.needed for right in lacking) else warning
    return make("rights", f"in {namespace} you may not: {told}", rights_fix())


def rights_fix() -> str:
    """Return what a researcher without rights does."""
    return "Ask the platform's owner to put you into the group ebb:researchers, or check which user your kubeconfig names."


async def _kind(kube: Kube) -> Finding:
    """Return whether the API server knows ElasticJobs, and all of their fields that this `ebb` may send."""
    root = f"/apis/{names.API_VERSION}"
    try:
        served = await kube.request("GET", root)
    except NotFound:
        return problem("elasticjobs", f"the cluster does not know {names.API_VERSION}", f"To get it: {REPAIR}.")
    except KubeError as error:
        return warning("elasticjobs", f"{root} cannot be read: {error}", "Try again.")
    if not any(item.get("name") == names.PLURAL for item in served.get("resources") or []):
        return problem("elasticjobs", f"{names.API_VERSION} has no {names.PLURAL}", f"To get them: {REPAIR}.")
    try:
        described = await kube.request("GET", f"/openapi/v3/apis/{names.API_VERSION}")
    except KubeError:
        return ok("elasticjobs", f"{names.API_VERSION} is served")
    return symptoms.version_skew(described)


async def _inside(kube: Kube, found: Platform, namespace: str, now: float) -> list[Finding]:
    """Return what is in the namespace, read at once and then judged."""
    space, jobs, pods, events = await asyncio.gather(
        _read(lambda: kube.get(NAMESPACES, None, namespace)),
        _read(lambda: kube.list(ELASTIC_JOBS, namespace)),
        _read(lambda: kube.list(PODS, namespace)),
        _read(lambda: kube.list(EVENTS, namespace)),
    )
    lease, claims, quotas, gateway = await asyncio.gather(
        _read(lambda: kube.get(LEASES, SYSTEM, LEASE)),
        _read(lambda: kube.list(CLAIMS, namespace)),
        _read(lambda: kube.list(QUOTAS, namespace)),
        _read(lambda: kube.list(PODS, namespace, labels=f"app.kubernetes.io/name={names.GATEWAY}")),
    )
    known_jobs, known_pods, known_events = _list(jobs), _list(pods), _list(events)
    return [
        _space(space, namespace),
        symptoms.controller(_object(lease), known_jobs, now, why=_why(lease)),
        symptoms.volumes(found.volumes, _maybe(claims), known_pods),
        symptoms.etcd(found.etcd_endpoint, known_events, now),
        symptoms.machines(found, known_pods, known_events, now),
        symptoms.quotas(_maybe(quotas), known_jobs),
        symptoms.gateway(_maybe(gateway)),
    ]


def _space(space: "Object | KubeError", namespace: str) -> Finding:
    if isinstance(space, NotFound):
        return problem("namespace", f"{namespace} is not there", f"Name another with -n; or {REPAIR}.")
    if isinstance(space, Denied):
        return unseen("namespace", f"{namespace}: only its contents may be looked at")
    if isinstance(space, KubeError):
        return warning("namespace", f"{namespace}: {space}", "Try again.")
    if (space.get("status") or {}).get("phase") == "Terminating":
        return problem("namespace", f"{namespace} is being deleted", f"Wait until it is gone; then {REPAIR}.")
    return ok("namespace", namespace)


async def _read(ask: Callable[[], Awaitable[T]]) -> T | KubeError:
    """Return what the server says, refusals included."""
    try:
        return await ask()
    except KubeError as error:
        return error


def _maybe(found: "list[Object] | KubeError") -> list[Object] | None:
    return None if isinstance(found, KubeError) else found


def _list(found: "list[Object] | KubeError") -> list[Object]:
    return _maybe(found) or []


def _object(found: "Object | KubeError") -> Object | None:
    return None if isinstance(found, KubeError) else found


def _why(found: "Object | KubeError") -> str:
    """Why an object could not be read: "denied", "missing", or ""."""
    return "denied" if isinstance(found, Denied) else "missing" if isinstance(found, NotFound) else ""


def _split(error: Exception) -> tuple[str, str]:
    """Return what is wrong and what to do, of our own sentences: the last one is the advice."""
    text = str(error)
    what, dot, fix = text.partition(". ")
    if not dot:
        what, _, fix = text.rpartition(": ")
    return what, fix[:1].upper() + fix[1:]


REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


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
    *(Right(verb=verb, resource="secrets", verbs=("secret",), needed=False) for verb in ("create", "update", "delete")),
    Right(verb="create", resource="pods/exec", verbs=("exec",)),
    Right(verb="create", resource="pods/portforward", verbs=("port", "data", "outputs", "report")),
    Right(verb="list", resource="nodes", place="*", verbs=("status", "top", "gpus"), needed=False),
)


async def missing(kube: Kube, namespace: str) -> tuple[Right, ...]:
    """Those of RIGHTS that one does not have. Raises KubeError where nobody can be asked."""
    allowed = await asyncio.gather(*(_allowed(kube, right, namespace) for right in RIGHTS))
    return tuple(right for right, has in zip(RIGHTS, allowed, strict=True) if not has)


async def user_name(kube: Kube) -> str:
    """Return who one is to the API server; "" where it does not say."""
    try:
        return await find_owner(kube)
    except (KubeError, KeyError, TypeError):
        return ""


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
