"""A real API server with Ebb's kind and rules on it, and a copy of what is there to wait upon. No kubelet, no scheduler.

    async with plane(folder) as made:
        await made.kube.create(ELASTIC_JOBS, "team", job)
        await made.seen.until("the job runs", lambda: made.seen.job("team", "digits")["status"]["state"] == "Running")

Of the controller manager only what tests rely on runs: the garbage collector, the accounts of namespaces, quotas. Pods start and
end because tests say so (machines.py). The controller gets in with the rights of manifests/rbac.yaml and nothing more.
"""

import asyncio
import itertools
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import yaml

from ebb.kube import (
    ELASTIC_JOBS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    Conflict,
    KubeError,
    NotFound,
    Resource,
    Unreachable,
)
from ebb.kube import Kube as Client
from ebb.kube.reflector import Reflector
from tests.testing.kubernetes.pulumi_world import ControlPlane

Object = dict[str, Any]
Answer = TypeVar("Answer")

PATIENCE = 400  # attempts, four a second
MANIFESTS = Path(__file__).parents[2] / "workloads" / "manifests"
SYSTEM, JOBS, ACCOUNT = "ebb-system", "elastic-job", "ebb-controller"
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
# What the manifests say of the API and of who may do what, in this order; the rest of them needs machines.
RULES = (
    "PriorityClass", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
)  # fmt: skip
MANAGER_RUNS = (
    "garbage-collector-controller,serviceaccount-controller,root-ca-certificate-publisher-controller,resourcequota-controller"
)


class Plane(ControlPlane):
    """The processes. See the module's docstring."""

    _manager: tuple[str | Path, ...] = ()

    def _run(self, name: str, *command: str | Path) -> None:
        if name == "manager":
            self._manager = (*command, f"--controllers={MANAGER_RUNS}")
        else:
            super()._run(name, *command)

    def manage(self) -> None:
        """Start the manager. A collector that starts before a kind is there learns of it half a minute later."""
        super()._run("manager", *self._manager)

    def dismiss_manager(self) -> None:
        """End it, until `manage`: nobody collects what a deleted object owned."""
        self._end("manager")

    def trust(self) -> ssl.SSLContext:
        """What a client needs to believe the server."""
        return ssl.create_default_context(cafile=str(self.folder / "ca.crt"))

    @property
    def server(self) -> str:
        found: str = json.loads(self.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        return found


class Patient(Client):
    """Asks again while the API server is away: what the tests themselves do is not what is on trial."""

    async def request(self, method: str, path: str, **more: Any) -> Object:
        for attempt in itertools.count():
            try:
                return await super().request(method, path, **more)
            except Unreachable:
                if attempt > PATIENCE:
                    raise
            except Conflict as error:
                if not attempt or error.reason != "AlreadyExists":
                    raise
                return {}  # by the attempt whose answer was lost
            except KubeError as error:
                if error.status not in (429, 500, 503, 504) or attempt > PATIENCE:
                    raise
            await asyncio.sleep(0.25)
        raise AssertionError


class Seen:
    """A copy of the objects that tests ask about, and the way to wait for a change in them."""

    def __init__(self, kube: Client) -> None:
        self._told = asyncio.Event()
        self.listeners: list[Callable[[Resource, Object | None, Object | None], None]] = []
        self._copies = {
            kind: Reflector(kube, kind, on_change=self._teller(kind)) for kind in (ELASTIC_JOBS, PODS, SERVICES, NODES, EVENTS)
        }

    def all(self, kind: Resource, namespace: str | None = None) -> Iterator[Object]:
        for (space, _), value in sorted(self._copies[kind].objects.items()):
            if namespace in (None, space):
                yield value

    def get(self, kind: Resource, namespace: str, name: str) -> Object | None:
        return self._copies[kind].objects.get((namespace, name))

    async def run(self) -> None:
        """Never returns."""
        async with asyncio.TaskGroup() as tasks:
            for copy in self._copies.values():
                tasks.create_task(copy.run())

    async def ready(self) -> None:
        for copy in self._copies.values():
            await copy.synced.wait()

    async def until(
        self, what: str, check: Callable[[], Answer | None], seconds: float = 15, also: Callable[[], object] = lambda: ""
    ) -> Answer:
        """Wait until `check` is truthy, looking again at every change; `also` tells more when it never is."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not (found := check()):
            assert loop.time() < deadline, f"{what}: not within {seconds:g} s. {also()}"
            self._told.clear()
            # What a check reads may change without an object doing so: a process that ends, a counter of a proxy.
            timer = loop.call_later(0.1, self._told.set)
            await self._told.wait()
            timer.cancel()
        return found

    def _teller(self, kind: Resource) -> Callable[[Object | None, Object | None], None]:
        def tell(old: Object | None, new: Object | None) -> None:
            for listener in self.listeners:
                listener(kind, old, new)
            self._told.set()

        return tell


class Made:
    """A plane in use."""

    def __init__(self, processes: Plane, kube: Client) -> None:
        self.processes, self.kube, self.seen = processes, kube, Seen(kube)

    async def apply(self, item: Object) -> None:
        """Create or change whatever it is, by its kind as the server knows it."""
        resource = await self._resource(item)
        await self.kube.apply(resource, item["metadata"].get("namespace"), item, manager="tests")

    async def namespace(self, name: str) -> None:
        """Make one, and wait for the account that pods in it need."""
        await self.kube.apply(NAMESPACES, None, _plain("v1", "Namespace", name), manager="tests")
        # A manager that found no API server looks for it again after up to a minute (client-go's reflectors: 30 s and a jitter).
        await found(lambda: self.kube.get(ACCOUNTS, name, "default"), 120)

    async def release_lease(self) -> None:
        """Nobody leads."""
        await gone(self.kube.delete(LEASES, SYSTEM, ACCOUNT))

    async def token(self, seconds: int = 24 * 3600) -> str:
        """Of the controller's account; 600 s is the least that an API server gives."""
        path = ACCOUNTS.path(SYSTEM, ACCOUNT, "token")
        body: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds}}
        answer = await self.kube.request("POST", path, body=body)
        token: str = answer["status"]["token"]
        return token

    async def lay_out(self) -> None:
        """Everything that must be there before a job is."""
        written = [item for path in sorted(MANIFESTS.rglob("*.yaml")) for item in yaml.safe_load_all(path.read_text())]
        await self._rules("CustomResourceDefinition", written)
        await found(lambda: self.kube.list(ELASTIC_JOBS))
        self.processes.manage()
        for name in (SYSTEM, JOBS):
            await self.namespace(name)
        for kind in RULES:
            await self._rules(kind, written)

    async def _rules(self, kind: str, written: list[Object | None]) -> None:
        for item in written:
            if item and item.get("kind") == kind:
                await self.apply(item)

    async def _resource(self, item: Object) -> Resource:
        version = item["apiVersion"]
        known = (await self.kube.request("GET", f"/apis/{version}" if "/" in version else f"/api/{version}"))["resources"]
        one = next(entry for entry in known if entry["kind"] == item["kind"] and "/" not in entry["name"])
        group, _, short = version.rpartition("/")
        return Resource(group, short, one["name"], item["kind"], one["namespaced"])


@asynccontextmanager
async def plane(folder: Path) -> AsyncIterator[Made]:
    """A control plane with the kind, the rules and the copy, until the block ends."""
    processes = Plane(folder)
    async with AsyncExitStack() as at_last:
        at_last.push_async_callback(asyncio.to_thread, processes.stop)
        await asyncio.to_thread(processes.start)
        kube = await at_last.enter_async_context(Patient.connect(str(processes.kubeconfig)))
        made = Made(processes, kube)
        await made.lay_out()
        task = asyncio.create_task(made.seen.run())
        at_last.push_async_callback(ended, task)
        await made.seen.ready()
        yield made


async def found(ask: Callable[[], Any], seconds: float = 30) -> None:
    """Wait until a question to the server has an answer."""
    async with asyncio.timeout(seconds):
        while True:
            with suppress(KubeError):
                await ask()
                return
            await asyncio.sleep(0.05)


async def ended(task: "asyncio.Task[Any]") -> None:
    """Stop a task for good."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def gone(call: Any) -> None:
    """A deletion of what is not there is done."""
    with suppress(NotFound):
        await call


def _plain(version: str, kind: str, name: str) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
