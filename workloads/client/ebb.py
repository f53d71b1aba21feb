"""One connection to one platform: what every function of this package is called with."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from workloads.client.reach import find_kubeconfig, read_platform
from workloads.kube import Kube
from workloads.platform import Platform

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
    kubeconfig: str | None = None, context: str | None = None, *, namespace: str | None = None, opener: Opener = Kube.connect
) -> AsyncIterator[Ebb]:
    """Open a connection; without arguments to where `ebb` itself would go. Raises NoPlatform, PlatformError, KubeError."""
    async with opener(find_kubeconfig(kubeconfig), context) as kube:
        platform = await read_platform(kube)
        yield Ebb(kube=kube, platform=platform, namespace=namespace or platform.jobs_namespace)
