"""The real controller on a fake API server in fake time, for tests that tell a story: `async with started() as world: ...`"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from ebb.controller.controller import Controller
from ebb.controller.etcd.legacy import RunError
from ebb.controller.metrics import Metrics
from ebb.controller.reconciler.notifications import Notification
from ebb.controller.usage.accounts import Aside
from ebb.kube import ELASTIC_JOBS, EVENTS, LEASES, NODES, PODS
from tests.builders import NOW, make_lease, make_node
from tests.fake_kube import FakeKube

Object = dict[str, Any]
DIGITS = "digits"


async def at_once(work: Callable[[], Any]) -> Any:
    """Do it here: fake time does not wait for threads."""
    return work()


class FakeReceiver:
    """A webhook that outlives controllers. Without `taken` there is none."""

    def __init__(self) -> None:
        self.taken: list[Notification] | None = None
        self.problem = ""  # why nothing is taken
        self.answer_seconds = 0.0  # until it answers, after it has taken one

    def is_there(self) -> bool:
        return self.taken is not None

    async def send(self, what: Notification) -> str:
        if self.taken is None or self.problem:
            return self.problem or "none"
        self.taken.append(what)
        await asyncio.sleep(self.answer_seconds)
        return ""


class FakeCluster:
    """The pieces, and the questions that tests ask."""

    controller: Controller

    def __init__(self, api: FakeKube, fence: Callable[[], None], aside: Aside) -> None:
        self.api, self._fence, self._aside = api, fence, aside
        self.metrics_text: dict[str, str] = {}  # address of a worker -> its metrics
        self.launcher_text: dict[str, str] = {}  # and those of its launcher
        self.launcher_asked: list[str] = []
        self.asked_etcd: list[str] = []  # of one with the v2 API
        self.etcd_is_away = False
        self.notifications = FakeReceiver()
        self.dead: set[str] = set()  # machines whose kubelet renews no Lease any more

    def job(self, name: str = DIGITS) -> Object:
        return next(job for job in self.api.all(ELASTIC_JOBS) if job["metadata"]["name"] == name)

    def status(self, name: str = DIGITS) -> Object:
        return self.job(name).get("status") or {}

    def state(self, name: str = DIGITS) -> str:
        return str(self.status(name).get("state"))

    def pods(self) -> list[str]:
        return self.api.names(PODS)

    def pod(self, name: str) -> Object:
        return next(pod for pod in self.api.all(PODS) if pod["metadata"]["name"] == name)

    def edit_spec(self, **changes: Any) -> None:
        """Do as `kubectl patch` or `kubectl scale`; replicas goes to the workers."""

        def edit(job: Object) -> None:
            job["metadata"]["generation"] += 1
            replicas = changes.pop("replicas", None)
            if replicas is not None:
                job["spec"]["replicaSpecs"]["Worker"]["replicas"] = replicas
            job["spec"] |= changes

        self.api.change(ELASTIC_JOBS, DIGITS, edit)

    def events(self) -> list[str]:
        """Reasons, in the order in which they were sent."""
        return [
            event["reason"] for event in sorted(self.api.all(EVENTS), key=lambda item: int(item["metadata"]["resourceVersion"]))
        ]

    async def settle(self, seconds: float = 0.5) -> None:
        """Let everything happen that is due within `seconds` of fake time."""
        await asyncio.sleep(seconds)

    def submit(self, job: Object) -> None:
        self.api.put(ELASTIC_JOBS, job)

    async def start_all(self, job: Object, nodes: int = 2) -> None:
        """Submit the job, and let its workers run on nodes n0, n1, ..."""
        for index in range(nodes):
            self.api.put(NODES, make_node(f"n{index}"))
        self.api.put(ELASTIC_JOBS, job)
        await self.settle()
        for index, name in enumerate(self.pods()):
            self.api.pod_runs(name, f"n{index % nodes}")
        await self.settle()

    async def beat(self, *nodes: str, seconds: float, every: float = 10.0) -> None:
        """Let time pass while the kubelets of these machines renew their Leases, one after the other; the dead ones do not."""
        turns = round(seconds / every * len(nodes))
        for turn in range(turns):
            node = nodes[turn % len(nodes)]
            if node not in self.dead:
                self.api.put(LEASES, make_lease(node, self.api.clock()))
            await asyncio.sleep(every / len(nodes))

    def start(self) -> None:
        """Start the controller."""

        async def fetch(address: str) -> str | None:
            return self.metrics_text.get(address)

        async def fetch_launcher(address: str) -> str | None:
            self.launcher_asked.append(address)
            return self.launcher_text.get(address)

        self.controller = Controller(
            self.api,
            fence=self._fence,
            fetch=fetch,
            fetch_launcher=fetch_launcher,
            send=self._send,
            clock=self.api.clock,
            metrics=Metrics(),
            receiver=self.notifications,
            aside=self._aside,
        )
        self._task = asyncio.create_task(self.controller.run())

    async def _send(self, method: str, address: str, fields: Mapping[str, str]) -> Object:
        """An etcd with the v2 API, while it is there."""
        if self.etcd_is_away:
            raise RunError(f"{address}: refused: does this etcd run?")
        self.asked_etcd.append(f"{method} {address}")
        return {"action": "create"}

    async def kill(self) -> None:
        """Stop the controller wherever it is, as kill -9 would between two calls. Raises what it died of, if it did."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


@asynccontextmanager
async def started(fence: Callable[[], None] = lambda: None, aside: Aside = at_once) -> AsyncIterator[FakeCluster]:
    """A controller that runs until the block ends."""
    loop = asyncio.get_running_loop()
    world = FakeCluster(FakeKube(lambda: NOW + loop.time()), fence, aside)
    world.start()
    try:
        yield world
    finally:
        await world.kill()
