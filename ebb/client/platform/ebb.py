"""One connection to one platform: what every function of this package is called with."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from ebb.api.platform import Platform
from ebb.client.platform.reach import find_way, read_platform
from ebb.kube import Kube

Opener = Callable[[str | None, str | None], AbstractAsyncContextManager[Kube]]
"""(kubeconfig, context) -> connection; tests hand in one of their own."""


@dataclass(frozen=True, kw_only=True)
class Ebb:
    """A platform that answers, and the namespace whose jobs are meant."""

    kube: Kube
    platform: Platform
    namespace: str


@asynccontextmanager
async def connect(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    namespace: str | None = None,
    platform: str | None = None,
    opener: Opener = Kube.connect,
) -> AsyncIterator[Ebb]:
    """Open a connection; without arguments to where `ebb` itself would go. `platform`: its name in platforms.py's file.

    Raises NoPlatform, PlatformError, KubeError, Missing for a platform that is not known.
    """
    way = find_way(kubeconfig, context, platform)
    async with opener(way.kubeconfig, way.context) as kube:
        found = await read_platform(kube)
        yield Ebb(kube=kube, platform=found, namespace=namespace or found.jobs_namespace)
