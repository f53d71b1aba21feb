"""The real controller in its own process, with its own rights, killed now and then.

    controller = await Controller.installed(plane, keep, checkout); await controller.start(); await controller.misfortunes(rng)

It is installed from the manifests that users apply, and acts as the service account of those, with a token.
"""

import asyncio
import base64
import json
import random
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from benchmarks.controller.plane import ACCOUNTS, Plane
from benchmarks.controller.processes import BenchmarkError, Process, eventually
from benchmarks.week.kinds import URGENT
from benchmarks.week.presence import Presence
from devcluster import tools
from devcluster.commands import run
from devcluster.settings import BoxError
from ebb.kube import ELASTIC_JOBS, KubeError, Resource
from testing.ports import free_port

SYSTEM, ACCOUNT = "ebb-system", "ebb-controller"
MANIFESTS = ("namespaces", "priorities", "crd", "rbac", "policy")  # in this order; the rest needs kubelets
PRIORITIES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
TOKEN_SECONDS = 86400
READY_SECONDS = 60.0
AWAY_SECONDS = (0.0, 8.0)  # until a kubelet or the Deployment's controller has started another one
GAVE_UP = "was not renewed"  # the last word of one that could not renew its Lease
LEADS_SECONDS = 120.0  # until it must lead: another pod waits for the Lease of the one before, 15 s, and a busy machine is slow


class Controller:
    """Made by `installed`."""

    def __init__(self, folder: Path, kubeconfig: Path, keep: AsyncExitStack, checkout: Path) -> None:
        self._folder, self._kubeconfig, self._keep, self._checkout = folder, kubeconfig, keep, checkout
        self._process: Process | None = None
        self._pods = 1
        self.presence = Presence()
        self.kills = 0
        self.rss_mb = 0.0
        self.gave_up = 0
        self._changing = asyncio.Lock()
        self.tell: Callable[[str], None] = lambda text: None

    @classmethod
    async def installed(cls, plane: Plane, keep: AsyncExitStack, checkout: Path) -> "Controller":
        """Definitions, rights and rules of that checkout are there; no process runs yet."""
        kubectl = await tools.ensure("kubernetes") / "kubectl"
        admin = ("--kubeconfig", plane.kubeconfig)
        await _answers(plane, "/readyz", lambda: run(kubectl, *admin, "get", "--raw", "/readyz"))
        for name in MANIFESTS:
            file = checkout / "workloads" / "manifests" / f"{name}.yaml"
            await run(kubectl, *admin, "apply", "--server-side", "-f", file)
        await _answers(plane, ELASTIC_JOBS.path(), lambda: plane.kube.list(ELASTIC_JOBS))
        await plane.kube.create(PRIORITIES, None, {"metadata": {"name": URGENT}, "value": 2000, "description": "Before others."})
        path = plane.folder / "controller.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(await _credentials(plane)))
        return cls(plane.folder, path, keep, checkout)

    async def start(self, *, same_pod: bool = True) -> None:
        """Another process, in the pod of the one before or in a new one."""
        if not same_pod:
            self._pods += 1
        listen = f"--listen=127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "ebb.controller", f"--kubeconfig={self._kubeconfig}", f"--namespace={SYSTEM}", listen]
        env = {"POD_NAME": self._name, "PYTHONDONTWRITEBYTECODE": "1"}
        self.presence.started(self._name)
        self._process = await Process.start("controller", command, self._folder, env=env, cwd=self._checkout)
        self._keep.push_async_callback(self._process.stop)
        self.tell(f"controller {self._name} is started")

    @property
    def _name(self) -> str:
        return f"{ACCOUNT}-{self._pods}"

    async def check(self) -> None:
        """Note its memory, and start another where it gave up because it could not renew its Lease, as a kubelet would: a busy
        machine may keep it from that. Raises BenchmarkError when it ended otherwise, or does not come to lead."""
        if self._process is None or self._changing.locked():
            return
        async with self._changing:
            if not self._runs(self._process):
                self.gave_up += 1
                self.presence.left(long_ago=True)
                self.tell(f"controller {self._name} gave up")
                await self.start()
            self.rss_mb = max(self.rss_mb, self._process.memory().peak)
            if self.presence.late_seconds > LEADS_SECONDS:
                raise BenchmarkError(f"the controller does not lead after {LEADS_SECONDS:.0f} s:\n{self._process.last_words}")

    def _runs(self, process: Process) -> bool:
        try:
            process.check()
        except BenchmarkError:
            if GAVE_UP not in process.last_words.rpartition("\n")[2]:
                raise
            return False
        return True

    async def kill(self, rng: random.Random, *, politely: bool) -> None:
        """End it, and start another one after a while."""
        if self._process is None:
            raise BenchmarkError("there is no controller to kill: start it first")
        await self.check()
        async with self._changing:
            self.kills += 1
            self.presence.left()
            self.tell(f"controller {self._name} is {'told to stop' if politely else 'killed'}")
            if not politely:
                self._process.kill()
            await self._process.stop()
            await asyncio.sleep(rng.uniform(*AWAY_SECONDS))
            await self.start(same_pod=rng.random() < 0.6)

    async def misfortunes(self, rng: random.Random, every_seconds: float) -> None:
        """Never returns: a kill now and then."""
        while True:
            await asyncio.sleep(rng.uniform(0.5, 1.5) * every_seconds)
            await self.kill(rng, politely=rng.random() < 0.25)


async def _answers(plane: Plane, what: str, ask: Callable[[], Awaitable[object]]) -> None:
    """Wait for an API server that has just come up, or has just learned a kind: it refuses for a while."""

    async def answers() -> bool:
        with suppress(KubeError, BoxError):
            await ask()
            return True
        return False

    await eventually(answers, READY_SECONDS, lambda: f"the API server does not answer {what}; see {plane.folder}")


async def _credentials(plane: Plane) -> object:
    """A kubeconfig with a token of the controller's own account."""
    asked = {"spec": {"expirationSeconds": TOKEN_SECONDS}}
    answer = await plane.kube.request("POST", ACCOUNTS.path(SYSTEM, ACCOUNT, "token"), body=asked)
    authority = base64.b64encode((plane.folder / "ca.crt").read_bytes()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "week",
        "clusters": [{"name": "week", "cluster": {"server": plane.server, "certificate-authority-data": authority}}],
        "users": [{"name": "week", "user": {"token": answer["status"]["token"]}}],
        "contexts": [{"name": "week", "context": {"cluster": "week", "user": "week"}}],
    }
