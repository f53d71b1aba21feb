"""Connections to platforms: which kubeconfig to take, one connection, and the same question to all platforms at once.

The first of these that says anything: --kubeconfig, --platform, $EBB_PLATFORM, $EBB_KUBECONFIG, in a pod its service account, the
current platform of ~/.config/ebb/platforms.yaml, $KUBECONFIG (which other tools set too: who has named platforms means those),
the devcluster `ebb` of this checkout if it is there, ~/.kube/config. A --context always counts. With platforms.py the only
reader of the environment.
"""

import asyncio
import getpass
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from ebb.api import platform
from ebb.api.contract import TEAM_PREFIX
from ebb.api.platform import Platform, PlatformError
from ebb.client.errors import BadRequest, ClientError, Missing, NoPlatform
from ebb.client.platform import platforms
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, Kube, KubeconfigError, KubeError, NotFound, Object

MAY = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@dataclass(frozen=True, kw_only=True)
class Way:
    """The way to a platform. `kubeconfig` None: in a pod, by its service account; `platform`: its name in the file, or ""."""

    kubeconfig: str | None
    context: str | None
    platform: str = ""


def find_way(kubeconfig: str | None = None, context: str | None = None, platform: str | None = None) -> Way:
    """The way by what was given and the environment. Raises NoPlatform, ConfigError, Missing for an unknown platform."""
    way = _way(kubeconfig, context, platform)
    if way.kubeconfig and not any(Path(path).expanduser().is_file() for path in way.kubeconfig.split(os.pathsep)):
        fix = "Set EBB_KUBECONFIG (or --kubeconfig) to the stack's kubeconfig, or run `make up` for a platform on this machine."
        if way.platform:
            fix = f"It is that of platform {way.platform!r}: put it back, or `ebb platform add {way.platform} --kubeconfig FILE`."
        raise NoPlatform(f"kubeconfig {way.kubeconfig!r} is not a file. {fix}")
    return way


def find_kubeconfig(given: str | None = None) -> str | None:
    """The path, or paths, of a kubeconfig that is there; None in a pod: its service account. Raises NoPlatform, ConfigError."""
    return find_way(given).kubeconfig


def find_box() -> str:
    """A researcher's kubeconfig of this checkout's box. Raises NoPlatform where it is not up."""
    box = _box()
    if not box.is_file():
        raise NoPlatform(f"no devcluster on this machine: {box} is not there. Bring it up with `make up` in Ebb's checkout.")
    return str(box)


def wants_all(kubeconfig: str | None, platform: str | None) -> bool:
    """Return whether --platform or $EBB_PLATFORM says `all`."""
    return not kubeconfig and (platform or os.environ.get("EBB_PLATFORM")) == platforms.ALL


def find_user() -> str:
    """Return who submits a job, as far as this machine says; "" where it does not. No proof of anything."""
    try:
        return os.environ.get("EBB_USER") or getpass.getuser()
    except (KeyError, OSError):
        return ""  # a container whose user has no name


async def find_owner(kube: Kube) -> str:
    """Return the user as whom the API server knows whoever asks; all may ask. Raises KubeError."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    found = await kube.request("POST", WHO, body=body)
    return str(found["status"]["userInfo"]["username"])


async def read_platform(kube: Kube) -> Platform:
    """ConfigMap `ebb-platform`. Raises NoPlatform if the cluster has none."""
    try:
        found = await kube.get(CONFIG_MAPS, platform.NAMESPACE, platform.NAME)
    except NotFound as error:
        raise NoPlatform(
            f"no Ebb platform at {kube.server}: {platform.WHERE} is not there. Run `pulumi up` on the stack, "
            "or set EBB_KUBECONFIG to the cluster that has one."
        ) from error
    return platform.parse(found.get("data") or {})


async def find_namespace(kube: Kube, found: Platform, team: str | None = None) -> str:
    """The namespace of a team, or the one whose jobs are meant where none is named. Raises Missing, BadRequest, KubeError."""
    known = {one.name: one.namespace for one in found.teams}
    named = team or os.environ.get("EBB_TEAM")
    if named:
        if named not in known:
            there = (
                f"There are: {', '.join(sorted(known))}." if known else "This platform has none: leave --team and EBB_TEAM out."
            )
            raise Missing(f"no team named {named!r}. {there}")
        return known[named]
    if not known or await _may_look(kube, found.jobs_namespace):
        return found.jobs_namespace
    allowed = await asyncio.gather(*(_may_look(kube, namespace) for namespace in known.values()))
    mine = [name for name, may in zip(known, allowed, strict=True) if may]
    if len(mine) > 1:
        raise BadRequest(f"you are in several teams: name one, --team {' or --team '.join(sorted(mine))}, or set EBB_TEAM.")
    return known[mine[0]] if mine else found.jobs_namespace


async def _may_look(kube: Kube, namespace: str) -> bool:
    asked = {"group": ELASTIC_JOBS.group, "resource": ELASTIC_JOBS.plural, "verb": "list", "namespace": namespace}
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    answer = await kube.request("POST", MAY, body={**kind, "spec": {"resourceAttributes": asked}})
    return bool((answer.get("status") or {}).get("allowed"))


async def read_job(kube: Kube, namespace: str, name: str) -> Object:
    """One ElasticJob. Raises Missing with the names that there are, BadRequest for an empty one: it would be all of them."""
    if not name:
        raise BadRequest("the job's name is empty: give one, as `ebb list` shows them.")
    try:
        return await kube.get(ELASTIC_JOBS, namespace, name)
    except NotFound as error:
        names = sorted(job["metadata"]["name"] for job in await kube.list(ELASTIC_JOBS, namespace))
        known = f"There are: {', '.join(names[:10])}{' and more' if len(names) > 10 else ''}." if names else "There are none."
        raise Missing(f"no job named {name!r} in {namespace}. {known}") from error


def _way(kubeconfig: str | None, context: str | None, name: str | None) -> Way:
    if kubeconfig:
        return Way(kubeconfig=kubeconfig, context=context)
    named = name or os.environ.get("EBB_PLATFORM")
    if named == platforms.ALL:
        raise BadRequest("platform 'all' is for `ebb list` and `ebb gpus` only: name one for anything else.")
    if named:
        return _known(platforms.find(named), context)
    if not (os.environ.get("EBB_KUBECONFIG") or "KUBERNETES_SERVICE_HOST" in os.environ):
        usual = platforms.current()
        if usual is not None:
            return _known(usual, context)
    return Way(kubeconfig=_kubeconfig(), context=context)


def _known(known: platforms.Known, context: str | None) -> Way:
    return Way(kubeconfig=known.kubeconfig, context=context or known.context, platform=known.name)


def _kubeconfig() -> str | None:
    """The kubeconfig that the environment names, or that of this checkout's box; None leaves it to the client's default."""
    named = os.environ.get("EBB_KUBECONFIG") or os.environ.get("KUBECONFIG")
    if named or "KUBERNETES_SERVICE_HOST" in os.environ:  # in a pod: its service account
        return named
    box = _box()
    if box.is_file():
        return str(box)
    default = Path("~/.kube/config").expanduser()
    if not default.is_file():
        raise KubeconfigError(
            f"no kubeconfig: EBB_KUBECONFIG and KUBECONFIG are not set, and neither {box} nor {default} is there. "
            "Set EBB_KUBECONFIG to the stack's kubeconfig, or run `make up` for a platform on this machine."
        )
    return str(default)


def _box() -> Path:
    home = Path(os.environ.get("EBB_HOME") or Path(__file__).parents[3] / ".ebb")
    return home / "boxes" / "ebb" / "researcher.kubeconfig"


Opener = Callable[[str | None, str | None], AbstractAsyncContextManager[Kube]]
"""(kubeconfig, context) -> connection; tests hand in one of their own."""


@dataclass(frozen=True, kw_only=True)
class Ebb:
    """A platform that answers, and the namespace whose jobs are meant."""

    kube: Kube
    platform: Platform
    namespace: str
    owner: str = ""  # the user as the API server knows them, in a team's namespace; elsewhere nobody owns anything


@asynccontextmanager
async def connect(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    namespace: str | None = None,
    platform: str | None = None,
    team: str | None = None,
    opener: Opener = Kube.connect,
) -> AsyncIterator[Ebb]:
    """Open a connection; without arguments to where `ebb` itself would go. `platform`: its name in platforms.py's file; `team`:
    whose jobs are meant, by default $EBB_TEAM's, then the stack's without a team, then those of the one team that lets one in.

    Raises NoPlatform, PlatformError, KubeError, Missing for a platform or a team that is not known.
    """
    way = find_way(kubeconfig, context, platform)
    async with opener(way.kubeconfig, way.context) as kube:
        found = await read_platform(kube)
        where = namespace or await find_namespace(kube, found, team)
        owner = await find_owner(kube) if where.startswith(TEAM_PREFIX) else ""
        yield Ebb(kube=kube, platform=found.seen_from(where), namespace=where, owner=owner)


T = TypeVar("T")

PATIENCE_SECONDS = 20.0  # a login by a browser or a slow plugin; a platform that is down shall not hold up the others for longer


@dataclass(frozen=True, kw_only=True)
class Answer(Generic[T]):
    """Of one platform. `trouble` says why there is no value; cloud and region are "" then."""

    platform: str
    current: bool
    cloud: str = ""
    region: str = ""
    value: T | None = None
    trouble: str = ""


async def everywhere(
    question: Callable[[Ebb], Awaitable[T]],
    *,
    namespace: str | None = None,
    opener: Opener = Kube.connect,
    patience_seconds: float = PATIENCE_SECONDS,
) -> tuple[Answer[T], ...]:
    """All answers, by name. Raises NoPlatform where no platform is known, or none answers."""
    known = platforms.known()
    if not known:
        raise NoPlatform("no platform is known by a name yet: add one with `ebb platform add NAME --kubeconfig FILE`.")

    async def ask(one: platforms.Known) -> Answer[T]:
        try:
            async with asyncio.timeout(patience_seconds), connect(platform=one.name, namespace=namespace, opener=opener) as ebb:
                value, found = await question(ebb), ebb.platform
        except (ClientError, KubeError, PlatformError) as error:
            return Answer(platform=one.name, current=one.current, trouble=str(error))
        except TimeoutError:
            return Answer(platform=one.name, current=one.current, trouble=f"no answer within {patience_seconds:g} s")
        return Answer(platform=one.name, current=one.current, cloud=found.cloud, region=found.region, value=value)

    return tuple(await asyncio.gather(*map(ask, known)))
