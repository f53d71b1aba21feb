"""The machines: which there are, which are in trouble, which have gone silent.

    machines = Machines(api, changed)                # changed(node): whoever has workers there is to look
    nodes, gone = await machines.find({"n0", "n1"})
    machines.look.silent, machines.look.doubt        # kept up to date by watch_heartbeats(), a task

Leases are an optional kind: without them a machine's silence is known when Kubernetes says so, some 50 s after its last word.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Protocol

from ebb.api.contract import LABEL_NODE_GROUP, MANAGER_GROUP
from ebb.controller.karpenter import LABEL_POOL
from ebb.controller.node_heartbeats import HeartbeatReport, NodeHeartbeats
from ebb.controller.reconciler.worker_state import has_notice, is_unknown, readiness
from ebb.controller.trimming import trim_lease, trim_node
from ebb.kube import LEASES, NODES, NotFound, Resource
from ebb.kube.reflector import Habits, Reflector, WatchSource

Object = dict[str, Any]

HEARTBEATS = "kube-node-lease"
DURATION_SECONDS = 40  # of a Lease that does not say; the kubelet's default
# Kubelets write every 10 s, and there is always some machine: this long without a word is a connection that died silently.
LIVELY_SECONDS = 20.0
STALE_SECONDS = 160.0  # a watch that breaks is missed within 82 s, and the next one of a quiet cluster speaks within 72 s
FASTEST_SECONDS = 1.0  # a look at all machines is some hundred microseconds for a thousand
STALE = "nothing was heard of the machines for too long"
MOST_GONE = 10_000
log = logging.getLogger(__name__)


class Reader(WatchSource, Protocol):
    """The calls needed of an API client."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object: ...


class Machines:
    """See the module's docstring."""

    def __init__(self, api: Reader, changed: Callable[[str], None], silent_after: float | None = None) -> None:
        self._api, self._changed = api, changed
        self._silence = NodeHeartbeats(silent_after)
        self._unknown: set[str] = set()  # their Ready condition says so
        self._noticed: set[str] = set()  # the cloud takes them back
        self._unready: dict[str, float] = {}  # when they were first seen so; the machines' own clocks may be hours away
        self._gone: dict[str, None] = {}  # seen deleted, or asked for and not there; in that order
        self._news = asyncio.Event()
        self.look = HeartbeatReport()
        self.nodes = Reflector(api, NODES, on_change=self._node_changed, on_gap=self._gap, habits=Habits(trim=trim_node))
        self.leases = Reflector(
            api,
            LEASES,
            HEARTBEATS,
            on_change=self._lease_changed,
            on_gap=self._lease_gap,
            habits=Habits(trim=trim_lease, optional=True, lively_seconds=LIVELY_SECONDS),
        )

    def unready(self, names: Collection[str]) -> dict[str, float]:
        """Those of these machines that say that they are not ready: seconds since that was seen."""
        now = asyncio.get_running_loop().time()
        return {name: now - self._unready[name] for name in names if name in self._unready}

    @property
    def shunned(self) -> frozenset[str]:
        """Machines to which no worker shall go any more, though Kubernetes may not have marked them yet."""
        return frozenset(self._noticed) | self.look.silent

    def may_be_named(self, name: str) -> bool:
        """Return whether a pod may ask not to be put there. Karpenter starts no machine for a pod that names one in matchFields
        (validateNodeSelectorTerm() in provisioning/provisioner.go of sigs.k8s.io/karpenter v1.14), and marks those of its own
        that it gives up with a taint; where the platform's own machines are, no worker goes in any case."""
        labels = self.nodes.objects.get(("", name), {}).get("metadata", {}).get("labels") or {}
        return LABEL_POOL not in labels and labels.get(LABEL_NODE_GROUP) != MANAGER_GROUP

    async def find(self, names: Collection[str]) -> tuple[Mapping[str, Object], frozenset[str]]:
        """The Nodes of these names, and the names that no Node has. Raises KubeError."""
        nodes, gone, asked = {}, set(), []
        for name in names:
            node = self.nodes.objects.get(("", name))
            if node is not None:
                nodes[name] = node
            elif name in self._gone:
                gone.add(name)
            else:
                asked.append(name)
        for name, node in zip(asked, await asyncio.gather(*map(self._ask, asked)), strict=True):
            if node is not None:
                nodes[name] = node
            else:
                gone.add(name)
        return nodes, frozenset(gone)

    async def watch_heartbeats(self) -> None:
        """Keep `look` up to date, and tell of machines that fell silent, were heard again, or are no longer in doubt. Never
        returns."""
        while True:
            self._news.clear()
            self._judge()
            await asyncio.sleep(FASTEST_SECONDS)
            due = self.look.again_at
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._news.wait()

    def _judge(self) -> None:
        stale = STALE if self.nodes.age_seconds > STALE_SECONDS else ""
        known = {name for _, name in self.nodes.objects}
        old, now = self.look, asyncio.get_running_loop().time()
        self.look = self._silence.look(known=known, unknown=self._unknown, stale=stale, now=now)
        told = old.silent ^ self.look.silent
        if bool(old.doubt) != bool(self.look.doubt):
            log.info("silent machines: %s", self.look.doubt or "believed again")
            # In doubt the pods of a machine that is gone are asked to leave, and nobody is there to do so.
            told |= self.look.silent | self._unknown | self._gone.keys()
        for node in told:
            self._changed(node)

    async def _ask(self, name: str) -> Object | None:
        """A pod may be on a node that the nodes' watch has not told of yet: only the API server knows that one is not there."""
        try:
            return await self._api.get(NODES, None, name)
        except NotFound:
            self._went(name)
            return None

    def _went(self, name: str) -> None:
        self._gone[name] = None
        if len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]

    def _gap(self) -> None:
        self._silence.mistrust(asyncio.get_running_loop().time())
        self._news.set()

    def _lease_gap(self) -> None:
        self._silence.restart(asyncio.get_running_loop().time())
        self._news.set()

    def _lease_changed(self, old: Object | None, new: Object | None) -> None:
        value = new or old
        assert value is not None
        name = value["metadata"]["name"]
        if new is None:
            self._silence.forget(name)
            return
        spec = new["spec"]
        duration = spec["leaseDurationSeconds"] or DURATION_SECONDS
        now = asyncio.get_running_loop().time()
        self._silence.heard(name, renewed=spec["renewTime"] or "", duration_seconds=duration, now=now)
        if old is None or name in self.look.silent:
            self._news.set()

    def _node_changed(self, old: Object | None, new: Object | None) -> None:
        value = new or old
        assert value is not None
        name = value["metadata"]["name"]
        if new is None:
            self._went(name)
        else:
            self._gone.pop(name, None)
        self._noticed.discard(name)
        if new is not None and has_notice(new):
            self._noticed.add(name)
        ready = readiness(new) if new is not None else ""
        if ready != "False":
            self._unready.pop(name, None)
        else:
            self._unready.setdefault(name, asyncio.get_running_loop().time())
        unknown = new is not None and is_unknown(new)
        if unknown != (name in self._unknown):
            self._unknown ^= {name}
            self._judge()  # before anybody acts on it
            self._news.set()
        self._changed(name)
