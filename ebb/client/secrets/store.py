"""Secrets of the platform: set, list, remove, and the question whether those that a job names are there.

    await set_secret(ebb, "hf-token", b"hf_...")         # again: it is replaced
    await list_secrets(ebb)                             # names, and who set them when; never values
    await check_there(ebb, namespace, job)              # before the job is sent. Raises Missing, BadRequest

A secret is two objects of one name. The Secret holds the value; researchers may create, replace and delete it, but neither get,
list nor patch it, as each of these would show what it holds, and nothing here asks for that. The ConfigMap beside it says that it
is there, and all else that `ebb secret list` shows.

In a team's namespace each has secrets of their own: the owner is in the object's name, and manifests/owners.yaml lets nobody
write another's, or give it to a job. Without teams nothing of the kind is protected: who may start jobs in the namespace can give
any of its secrets to a job, and read it there.
"""

import base64
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ebb.api.contract import ANNOTATION_OWNER, LABEL_SECRET
from ebb.client.errors import BadRequest, ClientError, Missing
from ebb.client.jobs.view import OVER, view, worker_spec
from ebb.client.platform.connection import Ebb, find_user
from ebb.client.secrets.uses import KEY, REGISTRY_KEY, SecretUse, object_name, secret_name, uses_of, usual_variable
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, SECRETS, Conflict, Invalid, NotFound, Object

MOST_BYTES = 2**20  # Kubernetes' limit of one Secret
MOST_BYTES_OF_VARIABLE = 2**17 - 2**10  # Linux: NAME=value with its end has at most 128 KiB
VALUE, REGISTRY = "value", "registry"
_OPAQUE, _LOGIN = "Opaque", "kubernetes.io/dockerconfigjson"
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?(/[A-Za-z0-9._/-]+)?")
_DOCKER_HUB = {"docker.io": "https://index.docker.io/v1/"}  # under which Kubernetes looks for it
_FACTS = "about.json"


@dataclass(frozen=True, kw_only=True)
class SecretView:
    """A secret without its value."""

    name: str
    kind: str  # value, or registry: a login to a registry of images
    variable: str  # the usual one; "" where the value cannot be a variable, and for a registry
    registry: str  # its host, "" for a value
    username: str
    set_by: str  # who says to have set it
    set_at: str  # RFC 3339
    jobs: tuple[str, ...] = ()  # that use it and are not over


# ------------------------------------------------------------------------------------------------------------ set, list, remove


def one_line(raw: bytes) -> bytes:
    """A value without the line end that editors and `echo` put after it; of several lines nothing is taken."""
    text = raw.removesuffix(b"\n").removesuffix(b"\r")
    return raw if b"\n" in text else text


async def set_secret(ebb: Ebb, name: str, value: bytes) -> tuple[SecretView, bool]:
    """Make a secret, or replace its value: then the second is true, and workers that run keep what they were started with.

    Raises BadRequest, ClientError, KubeError.
    """
    name = secret_name(name)
    _check_size(name, len(value))
    found = SecretView(
        name=name,
        kind=VALUE,
        variable=usual_variable(name) if _may_be_variable(value) else "",
        registry="",
        username="",
        set_by=find_user(),
        set_at=_now(),
    )
    return await _set(ebb, found, {KEY: value}, _OPAQUE)


async def set_registry_secret(ebb: Ebb, name: str, *, host: str, username: str, password: bytes) -> tuple[SecretView, bool]:
    """The same for a login to a private registry of images."""
    name = secret_name(name)
    check_registry(name, host, username)
    try:
        text = password.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"secret {name!r}: a registry's password is text, and this is none.") from error
    login = {"username": username, "password": text, "auth": base64.b64encode(f"{username}:{text}".encode()).decode()}
    content = json.dumps({"auths": {_DOCKER_HUB.get(host, host): login}}).encode()
    _check_size(name, len(content) if password else 0)
    found = SecretView(name=name, kind=REGISTRY, variable="", registry=host, username=username, set_by=find_user(), set_at=_now())
    return await _set(ebb, found, {REGISTRY_KEY: content}, _LOGIN)


def check_registry(name: str, host: str, username: str) -> None:
    """Raises BadRequest."""
    if not _HOST.fullmatch(host):
        raise BadRequest(
            f"registry {host!r} is not a host: give what stands before the image's name, without https://, as in "
            f"`ebb secret set {name} --registry ghcr.io --username ada`."
        )
    if not username or ":" in username:
        raise BadRequest(f"username {username!r} is not usable: give the one of {host}, without ':', with --username.")


async def list_secrets(ebb: Ebb) -> tuple[SecretView, ...]:
    """All of the namespace, by name; in a team's one's own."""
    maps = await _indices(ebb, ebb.namespace)
    users = _users(await ebb.kube.list(ELASTIC_JOBS, ebb.namespace))
    return tuple(sorted((_view(item, users) for item in maps), key=lambda found: found.name))


async def remove_secret(ebb: Ebb, name: str, *, force: bool = False) -> SecretView:
    """Raises Missing, ClientError where jobs use it that are not over, unless they are to lose it."""
    name = secret_name(name)
    there = {one.name: one for one in await list_secrets(ebb)}
    if name not in there:
        raise Missing(_not_there(ebb.namespace, [name], there))
    found = there[name]
    if found.jobs and not force:
        several = len(found.jobs) > 1
        raise ClientError(
            f"secret {found.name!r} is used by {', '.join(found.jobs)}: {'their' if several else 'its'} next worker could not "
            f"start without it. End {'these jobs' if several else 'that job'} first, or remove it all the same with --force."
        )
    for kind in (SECRETS, CONFIG_MAPS):  # in this order: what is listed can be removed again
        try:
            await ebb.kube.delete(kind, ebb.namespace, object_name(found.name, ebb.owner))
        except NotFound:
            continue
    return found


# ------------------------------------------------------------------------------------------------------ before a job is sent


async def check_there(ebb: Ebb, namespace: str, job: Object) -> None:
    """Raises Missing for a secret that is not there, BadRequest for one that cannot be what the job makes of it."""
    uses = uses_of_job(job)
    if not uses:
        return
    maps = await _indices(ebb, namespace)
    there = {found.name: found for found in (_view(item, {}) for item in maps)}
    if missing := [name for name in dict.fromkeys(use.name for use in uses) if name not in there]:
        raise Missing(f"{_not_there(namespace, missing, there)} Set it with `ebb secret set {missing[0]}`.")
    for use in uses:
        _check_kind(use, there[use.name])


def uses_of_job(job: Object) -> tuple[SecretUse, ...]:
    """Return the secrets that a job names."""
    return uses_of((worker_spec(job).get("template") or {}).get("spec") or {})


def _check_kind(use: SecretUse, found: SecretView) -> None:
    login = not use.variable and not use.path
    if login and found.kind != REGISTRY:
        raise BadRequest(
            f"registry-secret {use.name!r} is a value and no login to a registry: give it with --secret {use.name}, or set a "
            f"login with `ebb secret set NAME --registry HOST --username U`."
        )
    if not login and found.kind == REGISTRY:
        raise BadRequest(
            f"secret {use.name!r} is the login to {found.registry}: give it with --registry-secret {use.name}, for the image."
        )
    if use.variable and not found.variable:
        raise BadRequest(
            f"secret {use.name!r} is not text, or too long for a variable (128 KiB): let it be a file, as in "
            f"--secret {use.name}=/secrets/{use.name}."
        )


def _not_there(namespace: str, missing: Iterable[str], there: Iterable[str]) -> str:
    names = sorted(there)
    known = f"There are: {', '.join(names[:10])}{' and more' if len(names) > 10 else ''}." if names else "There are none."
    first, *others = missing
    more = f" and {', '.join(map(repr, others))}" if others else ""
    return f"no secret named {first!r}{more} in {namespace}. {known}"


# ------------------------------------------------------------------------------------------------------------ the two objects


async def _set(ebb: Ebb, found: SecretView, data: dict[str, bytes], kind: str) -> tuple[SecretView, bool]:
    name, there = found.name, await _read(ebb, found.name)
    if there is not None and there.kind != found.kind:
        is_now = f"the login to {there.registry}" if there.kind == REGISTRY else "a value"
        raise BadRequest(
            f"secret {name!r} is {is_now} now, which cannot become the other: choose another name, or remove it first with "
            f"`ebb secret rm {name}`."
        )
    secret = _object(SECRETS.kind, ebb, name)
    secret |= {"type": kind, "data": {key: base64.b64encode(value).decode() for key, value in data.items()}}
    await _write_secret(ebb, secret)
    facts = {"kind": found.kind, "variable": found.variable, "registry": found.registry, "username": found.username}
    facts |= {"set_by": found.set_by, "set_at": found.set_at}
    index = _object(CONFIG_MAPS.kind, ebb, name) | {"data": {_FACTS: json.dumps(facts)}}
    try:
        await ebb.kube.create(CONFIG_MAPS, ebb.namespace, index)
    except Conflict:
        await ebb.kube.replace(CONFIG_MAPS, ebb.namespace, object_name(name, ebb.owner), index)
    return found, there is not None


async def _write_secret(ebb: Ebb, secret: Object) -> None:
    """As a whole: a patch would need the right to patch, and its answer shows the value."""
    name = secret["metadata"]["name"]
    try:
        await ebb.kube.create(SECRETS, ebb.namespace, secret)
    except Conflict as error:
        if error.reason != "AlreadyExists":
            raise
        try:
            await ebb.kube.replace(SECRETS, ebb.namespace, name, secret)
        except Invalid:  # left by an interrupted `set` of the other kind, and a type cannot change
            await ebb.kube.delete(SECRETS, ebb.namespace, name)
            await ebb.kube.create(SECRETS, ebb.namespace, secret)
    except NotFound as error:
        raise ClientError(f"namespace {ebb.namespace!r} is not there ({error}): check -n.") from error


def _object(kind: str, ebb: Ebb, name: str) -> Object:
    metadata: Object = {"name": object_name(name, ebb.owner), "namespace": ebb.namespace, "labels": {LABEL_SECRET: name}}
    if ebb.owner:
        metadata["annotations"] = {ANNOTATION_OWNER: ebb.owner}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


async def _indices(ebb: Ebb, namespace: str) -> list[Object]:
    maps = await ebb.kube.list(CONFIG_MAPS, namespace, labels=LABEL_SECRET)
    return [item for item in maps if (item["metadata"].get("annotations") or {}).get(ANNOTATION_OWNER, "") == ebb.owner]


async def _read(ebb: Ebb, name: str) -> SecretView | None:
    try:
        return _view(await ebb.kube.get(CONFIG_MAPS, ebb.namespace, object_name(name, ebb.owner)), {})
    except NotFound:
        return None


def _view(index: Object, users: dict[str, list[str]]) -> SecretView:
    """Of a ConfigMap; one that somebody has spoiled is a value of which nothing is known."""
    name = index["metadata"]["labels"][LABEL_SECRET]
    try:
        facts: Any = json.loads((index.get("data") or {}).get(_FACTS, ""))
    except ValueError:
        facts = {}
    told = {key: str(facts.get(key, "")) for key in ("variable", "registry", "username", "set_by", "set_at")}
    kind = REGISTRY if facts.get("kind") == REGISTRY else VALUE
    return SecretView(name=name, kind=kind, **told, jobs=tuple(sorted(users.get(name, ()))))


def _users(jobs: Iterable[Object]) -> dict[str, list[str]]:
    """Return name -> the jobs that use it and may still start a worker."""
    found: dict[str, list[str]] = {}
    for job in jobs:
        if view(job).state in OVER:
            continue
        for name in dict.fromkeys(use.name for use in uses_of_job(job)):
            found.setdefault(name, []).append(str(job["metadata"]["name"]))
    return found


def _may_be_variable(value: bytes) -> bool:
    try:
        return "\0" not in value.decode() and len(value) <= MOST_BYTES_OF_VARIABLE
    except UnicodeDecodeError:
        return False


def _check_size(name: str, size: int) -> None:
    if not size:
        raise BadRequest(f"secret {name!r}: the value is empty. Type it, pipe it in, or name a file with --from-file.")
    if size > MOST_BYTES:
        raise BadRequest(
            f"secret {name!r}: the value has {size} bytes, and a secret holds at most {MOST_BYTES} (1 MiB). What is larger "
            "belongs on a volume: `ebb data put`."
        )


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
