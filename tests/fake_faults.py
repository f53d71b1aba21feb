"""What can be made to go wrong with the fake API server: calls that fail, watches that die, kinds that are not given."""

import asyncio
from collections.abc import Callable

from ebb.kube import KubeError, Resource, Unreachable


class Faults:
    """The part of FakeKube that fails on demand."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.failed_at: list[float] = []  # when `fail` came true
        self._news = asyncio.Event()
        self._failures: list[tuple[str, str, KubeError | TimeoutError]] = []
        self._muted: set[str] = set()
        self._cut: dict[str, KubeError] = {}
        self._hanging: set[str] = set()

    def fail(self, verb: str, resource: Resource, error: KubeError | TimeoutError, times: int = 1) -> None:
        """Make the next calls of that verb fail."""
        self._failures += [(verb, resource.plural, error)] * times

    def mute(self, resource: Resource) -> None:
        """Watches of this kind die silently until `unmute`: nothing comes, and no end."""
        self._muted.add(resource.plural)

    def unmute(self, resource: Resource) -> None:
        self._muted.discard(resource.plural)

    def go_away(self, *resources: Resource) -> None:
        """End their watches, and answer no list and no watch until `come_back`."""
        gone = Unreachable("connection refused")
        self._cut |= {resource.plural: gone for resource in resources}
        self._ring()

    def come_back(self) -> None:
        self._cut.clear()

    def hang(self, resource: Resource) -> None:
        """Take requests for lists of this kind and never answer."""
        self._hanging.add(resource.plural)

    def refuse(self, resource: Resource, error: KubeError) -> None:
        """Answer no list and no watch of this kind, from now on."""
        self._cut[resource.plural] = error

    def _trip(self, verb: str, resource: Resource) -> None:
        if resource.plural in self._cut and verb in ("list", "next page", "watch"):
            raise self._cut[resource.plural]
        for failure in self._failures:
            if failure[:2] == (verb, resource.plural):
                self._failures.remove(failure)
                self.failed_at.append(self.clock())
                raise failure[2]

    def _ring(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
