"""One run of `ebb`: what its global options said of how to reach the platform."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from ebb.client.platform.ebb import Ebb, Opener, connect
from ebb.client.platform.reach import wants_all
from ebb.kube import Kube


@dataclass(kw_only=True)
class Session:
    """How to reach the platform; tests hand in a `connect` of their own."""

    kubeconfig: str | None = None
    context: str | None = None
    platform: str | None = None
    before: str | None = None  # the platform that was named before the verb, where one is named after it
    named_after: bool = False
    connect: Opener = Kube.connect

    def open(self, namespace: str | None = None) -> AbstractAsyncContextManager[Ebb]:
        """A connection. Raises NoPlatform, PlatformError, KubeError, Missing for an unknown platform."""
        return connect(self.kubeconfig, self.context, namespace=namespace, platform=self.platform, opener=self.connect)

    def open_before(self, namespace: str | None = None) -> AbstractAsyncContextManager[Ebb]:
        """The platform that is meant without what is said after the verb: where `submit --from` finds its job."""
        platform = self.before if self.named_after else self.platform
        return connect(self.kubeconfig, self.context, namespace=namespace, platform=platform, opener=self.connect)

    @property
    def everywhere(self) -> bool:
        """Whether all platforms are meant."""
        return wants_all(self.kubeconfig, self.platform)

    def name(self, platform: str) -> None:
        """--platform after the verb."""
        self.before, self.platform, self.named_after = self.platform, platform, True
