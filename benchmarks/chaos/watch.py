"""Follows the cluster into the history: pods and jobs by list and watch, and all values that etcd's records of a job ever had.

    watch = Watch(kube, history, IPv4Network(box.host_address))
    tasks.create_task(watch.run()); await watch.changes.until(lambda: ..., seconds=30)

etcd keeps the versions of a key until it is compacted, an hour later. So none is missed, however long etcd was away or we looked
elsewhere: from the newest we go back to the last that we knew.
"""

import asyncio
import base64
import json
import ssl
import tempfile
import urllib.error
import urllib.request
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from benchmarks.chaos.history import History
from benchmarks.chaos.judge import ENDS
from benchmarks.week.seen import ChangeSignal, Watched, worker
from ebb.api.contract import RUNNING
from ebb.kube import ELASTIC_JOBS, LEASES, NETWORK_POLICIES, PODS, SECRETS, Conflict, Kube, KubeError

Object = dict[str, Any]

NAMESPACE, SYSTEM = "elastic-job", "ebb-system"
LEASE = "ebb-controller"
ABSENT_SECONDS = 6.0  # without a renewal, of which there is one every 2 s
LOOK_SECONDS = 0.5
ANSWER_SECONDS = 2.0
ETCD_PORT = 2379
PREFIX = "/ebb/"
RECORDS = ("/ebb/checkpoints/", "/generation")  # of all that is there, what the judge reads: a beginning, and an end


class Watch:
    """See the module's docstring. `clients`: who may ask etcd besides those whom the platform lets."""

    def __init__(self, kube: Kube, history: History, clients: IPv4Network) -> None:
        self.changes, self._history, self._kube, self._clients = ChangeSignal(), history, kube, clients
        self._trust: ssl.SSLContext | None = None
        self.pods = Watched(kube, PODS, changed=self.changes.notify)
        self.jobs = Watched(kube, ELASTIC_JOBS, NAMESPACE, changed=self.changes.notify)
        self.pods.listeners.append(self._pod)
        self.jobs.listeners.append(self._job)
        self._leases = Watched(kube, LEASES, SYSTEM, changed=self.changes.notify)
        self._leases.listeners.append(self._lease)
        self._renewed_at, self._acts = history.seconds, True
        self._said: dict[str, Object] = {}
        self._revisions: dict[str, int] = {}

    async def run(self) -> None:
        """Never returns."""
        async with asyncio.TaskGroup() as tasks:
            for watched in (self.pods, self.jobs, self._leases):
                tasks.create_task(self._follow(watched))
            tasks.create_task(self._look())

    async def _follow(self, watched: Watched) -> None:
        """An API server that starts refuses what it does not know yet."""
        while True:
            with suppress(KubeError):
                await watched.run()
            await asyncio.sleep(LOOK_SECONDS)

    def state(self, name: str) -> str:
        """Of a job, "" for one that is not there."""
        found = next((job for job in self.jobs.objects.values() if job["metadata"]["name"] == name), {})
        return str((found.get("status") or {}).get("state", ""))

    def has_ended(self, name: str) -> bool:
        return self.state(name) in ENDS

    def trains(self, name: str) -> bool:
        """A job has enough workers, and they have met."""
        return self.state(name) == RUNNING and any(key.startswith(f"{PREFIX}{name}-") for key in self._revisions)

    def nodes_of_workers(self) -> set[str]:
        """Machines that have workers which live."""
        found = [worker(pod) for pod in self.pods.objects.values()]
        return {one.node for one in found if one is not None and one.node and not one.finished}

    def is_ready(self, namespace: str, app: str) -> bool:
        """There is a pod of this part of the platform that is ready."""
        return any(_is_ready(pod) for pod in self._of(namespace, app))

    def _of(self, namespace: str, app: str) -> list[Object]:
        return [
            pod for pod in self.pods.objects.values()
            if pod["metadata"]["namespace"] == namespace
            and (pod["metadata"].get("labels") or {}).get("app.kubernetes.io/name") == app
        ]  # fmt: skip

    def _pod(self, old: Object | None, new: Object | None) -> None:
        pod = new or old
        assert pod is not None
        one = worker(pod)
        if one is None:
            return
        facts = {
            "uid": one.uid, "name": one.name, "job": one.job, "index": one.index, "ip": one.address, "node": one.node,
            "phase": (pod.get("status") or {}).get("phase", ""), "leaving": one.leaving, "gone": new is None,
        }  # fmt: skip
        if ended := _ended(pod):
            facts |= {"code": ended["exitCode"], "message": ended.get("message", "")}
        self._say("pod", one.uid, facts)

    def _lease(self, old: Object | None, new: Object | None) -> None:
        """A controller that renews it acts; what else happens to the Lease says nothing."""
        times = [(one or {}).get("spec", {}).get("renewTime") for one in (old, new)]
        if new is None or new["metadata"]["name"] != LEASE or None in times or times[0] == times[1]:
            return
        self._renewed_at = self._history.seconds
        if not self._acts:
            self._acts = True
            self._history.add("acts", acts=True, since=round(self._renewed_at, 3))

    def _notice_absence(self) -> None:
        if self._acts and self._history.seconds - self._renewed_at > ABSENT_SECONDS:
            self._acts = False
            self._history.add("acts", acts=False, since=round(self._renewed_at, 3))

    def _job(self, _: Object | None, new: Object | None) -> None:
        if new is None:
            return
        status = new.get("status") or {}
        reasons = {one["type"]: one["reason"] for one in status.get("conditions") or () if one["status"] == "True"}
        facts = {
            "job": new["metadata"]["name"], "uid": new["metadata"]["uid"], "state": status.get("state", ""),
            "reason": reasons.get(status.get("state", ""), ""), "failures": status.get("failures", 0),
            "reclaims": status.get("reclaims", 0), "restarts": status.get("restarts", 0),
        }  # fmt: skip
        self._say("status", new["metadata"]["uid"], facts)

    def _say(self, what: str, uid: str, facts: Object) -> None:
        """Only what is new."""
        if self._said.get(uid) != facts:
            self._said[uid] = facts
            self._history.add(what, **facts)

    async def _look(self) -> None:
        while True:
            self._notice_absence()
            addresses = [(pod.get("status") or {}).get("podIP") for pod in self._of(SYSTEM, "etcd")]
            if self._trust is None:
                with suppress(KubeError):
                    await _let_in(self._kube, self._clients)
                    self._trust = await _certificates(self._kube)
            for address in filter(None, addresses if self._trust else ()):
                for key, value, revision in await asyncio.to_thread(self._news, address):
                    self._history.add("key", key=key, value=value, revision=revision)
                    self.changes.notify()
            await asyncio.sleep(LOOK_SECONDS)

    def _news(self, address: str) -> list[tuple[str, str, int]]:
        """In the order in which they were written; none while etcd does not answer."""
        found = []
        try:
            newest = self._range(address, PREFIX, prefix=True)
            for item in newest:
                key = _decoded(item["key"])
                if key.startswith(RECORDS[0]) or key.endswith(RECORDS[1]):
                    found += self._chain(address, key, item)
        except (OSError, ValueError, urllib.error.URLError):
            pass  # killed, cut off or starting: the next look finds all of it
        for key, _, revision in found:
            self._revisions[key] = max(revision, self._revisions.get(key, 0))
        return sorted(found, key=lambda one: one[2])

    def _chain(self, address: str, key: str, item: Object) -> list[tuple[str, str, int]]:
        found, known = [], self._revisions.get(key, 0)
        while int(item["mod_revision"]) > known:
            revision = int(item["mod_revision"])
            found.append((key, _decoded(item["value"]), revision))
            before = self._range(address, key, revision=revision - 1) if int(item["version"]) > 1 else []
            if not before:
                break
            item = before[0]
        return found

    def _range(self, address: str, key: str, *, prefix: bool = False, revision: int = 0) -> list[Object]:
        body: Object = {"key": _encoded(key)}
        if prefix:
            body["range_end"] = _encoded(key[:-1] + chr(ord(key[-1]) + 1))
        if revision:
            body["revision"] = revision
        request = urllib.request.Request(f"https://{address}:{ETCD_PORT}/v3/kv/range", data=json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS, context=self._trust) as answer:  # noqa: S310 - https
            found: list[Object] = json.load(answer).get("kvs", [])
        return found


async def _let_in(kube: Kube, clients: IPv4Network) -> None:
    """The platform's own policies let nobody ask etcd who is no pod of it or of a job. Raises KubeError."""
    client = {"from": [{"ipBlock": {"cidr": f"{clients}"}}], "ports": [{"protocol": "TCP", "port": ETCD_PORT}]}
    etcd = {"matchLabels": {"app.kubernetes.io/name": "etcd"}}
    body = {
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "chaos-watch", "namespace": SYSTEM},
        "spec": {"podSelector": etcd, "policyTypes": ["Ingress"], "ingress": [client]},
    }  # fmt: skip
    with suppress(Conflict):  # an earlier try came through, and its answer did not
        await kube.create(NETWORK_POLICIES, SYSTEM, body)


async def _certificates(kube: Kube) -> ssl.SSLContext:
    """Those of etcd's maintenance. Raises KubeError."""
    data = (await kube.get(SECRETS, SYSTEM, "etcd-maintenance"))["data"]
    with tempfile.TemporaryDirectory() as folder:
        for key in ("etcd.ca.crt", "etcd.crt", "etcd.key"):
            Path(folder, key).write_bytes(base64.b64decode(data[key]))
        trust = ssl.create_default_context(cafile=f"{folder}/etcd.ca.crt")
        trust.load_cert_chain(f"{folder}/etcd.crt", f"{folder}/etcd.key")
    trust.check_hostname = False  # it is asked by its pod's address; its authority signs for no other
    return trust


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode(errors="replace")


def _ended(pod: Object) -> Object:
    """The end of a container of it that ended, {} where none has."""
    states = [(one.get("state") or {}).get("terminated") for one in (pod.get("status") or {}).get("containerStatuses") or ()]
    return next((ended for ended in states if ended), {})


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]
