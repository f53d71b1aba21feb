"""One run of `ebb`: what its global options said of how to reach the platform."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from workloads.client.ebb import Ebb, Opener, connect
from workloads.kube import Kube


@dataclass(kw_only=True)
class Session:
    """How to reach the platform; tests hand in a `connect` of their own."""

    kubeconfig: str | None = None
    context: str | None = None
    connect: Opener = Kube.connect

    def open(self, namespace: str | None = None) -> AbstractAsyncContextManager[Ebb]:
        """A connection. Raises NoPlatform, PlatformError, KubeError."""
        return connect(self.kubeconfig, self.context, namespace=namespace, opener=self.connect)
