"""One real Kubernetes control plane for all contenders: etcd, API server, controller manager and scheduler, on the loopback.

    async with Plane.started(folder) as plane: plane.kube; await plane.account("ours"); plane.calls_of("ours")

Each contender speaks to it as a service account of its own, so that the API server treats it as it would in a cluster (flow
control included), and so that its requests can be counted in the audit log; so does each controller of Kubernetes. Binaries are
those of the local stack.
"""

import asyncio
import base64
import json
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from benchmarks.controller.processes import Process, eventually
from devcluster import tools
from devcluster.commands import run
from ebb.kube import NAMESPACES, PODS, Conflict, Kube, KubeError, Object, Resource
from testing.ports import free_port

ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
HOME = "bench-controllers"
"""The namespace of the contenders' service accounts."""
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"
"""Kubernetes' own, which makes the pods of a contender that leaves that to batch/v1 Jobs."""
TOKEN_SECONDS = 86400
READY_SECONDS = 60.0
# So that machines, bindings and clean-up never wait for the clients of the control plane itself (defaults: 20 to 100 a second).
UNHURRIED = ("--kube-api-qps=2000", "--kube-api-burst=4000")
AUDIT_WAIT_SECONDS = 1.0
# Watchers were closed as too slow 121 times in a run of `create` on a new server, 4 times after this (1.35.4, 2 busy cores).
WARM_CHANGES, WARM_PODS = 8000, 32
_ANY_CONTAINER = [{"name": "any", "image": "registry.invalid/any:1"}]


class Plane:
    """Made by `started`."""

    def __init__(self, folder: Path, kube: Kube, server: str, processes: Sequence[Process]) -> None:
        self.folder, self.kube, self.server, self._processes = folder, kube, server, processes
        self._audit = folder / "audit.log"

    @classmethod
    @asynccontextmanager
    async def started(cls, folder: Path) -> AsyncIterator["Plane"]:
        """Everything answers; all of it ends with the context."""
        kubernetes, etcd = await tools.ensure("kubernetes"), await tools.ensure("etcd36")
        ports = {name: free_port() for name in ("etcd", "peer", "api", "manager", "scheduler")}
        server, admin = f"https://127.0.0.1:{ports['api']}", folder / "admin.kubeconfig"
        await _certificates(folder)
        user = {"client-certificate": f"{folder}/admin.crt", "client-key": f"{folder}/admin.key"}
        admin.write_text(_kubeconfig(folder, server, user))
        (folder / "audit-policy.yaml").write_text(json.dumps(_audit_policy()))
        clients = [f"--kubeconfig={admin}", "--leader-elect=false", *UNHURRIED]
        async with AsyncExitStack() as opened:
            processes: list[Process] = []

            async def start(name: str, *args: str | Path) -> Process:
                processes.append(await Process.start(name, args, folder))
                opened.push_async_callback(processes[-1].stop)
                return processes[-1]

            await start("etcd", etcd / "etcd", *_etcd(folder, ports))
            api = await start("kube-apiserver", kubernetes / "kube-apiserver", *_api(folder, ports))
            kube = await opened.enter_async_context(Kube.connect(str(admin)))
            await _answers(kube, api)
            await start(
                "kube-controller-manager", kubernetes / "kube-controller-manager", *clients,
                f"--secure-port={ports['manager']}", f"--cert-dir={folder}/manager", f"--root-ca-file={folder}/ca.crt",
                f"--service-account-private-key-file={folder}/sa.key", "--use-service-account-credentials",
            )  # fmt: skip
            await start(
                "kube-scheduler", kubernetes / "kube-scheduler", *clients,
                f"--secure-port={ports['scheduler']}", f"--cert-dir={folder}/scheduler",
            )  # fmt: skip
            plane = cls(folder, kube, server, processes)
            await plane.namespace(HOME)
            yield plane

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "admin.kubeconfig"

    async def account(self, name: str) -> Path:
        """A kubeconfig for a service account that may do everything; made when it is not there."""
        body = {"metadata": {"name": name}}
        with suppress(Conflict):
            await self.kube.create(ACCOUNTS, HOME, body)
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        subject = {"kind": "ServiceAccount", "name": name, "namespace": HOME}
        with suppress(Conflict):
            await self.kube.create(BINDINGS, None, {**body, "roleRef": role, "subjects": [subject]})
        asked = {"spec": {"expirationSeconds": TOKEN_SECONDS}}
        answer = await self.kube.request("POST", ACCOUNTS.path(HOME, name, "token"), body=asked)
        path = self.folder / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(_kubeconfig(self.folder, self.server, {"token": answer["status"]["token"]}))
        return path

    async def namespace(self, name: str) -> None:
        """A namespace that takes pods: its default service account is there."""
        await self.kube.create(NAMESPACES, None, {"metadata": {"name": name}})

        async def complete() -> bool:
            return any(account["metadata"]["name"] == "default" for account in await self.kube.list(ACCOUNTS, name))

        await eventually(complete, READY_SECONDS, lambda: f"namespace {name} has no default service account")

    async def warm_up(self) -> None:
        """As many changes of pods as an API server in use has seen lately. Its watch cache gives every watcher room in proportion
        to them; the first burst on a new server overflows all watchers at once, the scheduler's and kwok's as well, and what is
        measured is then how they list everything anew."""

        async def change(index: int) -> None:
            pod = {"metadata": {"name": f"warm-{index}"}, "spec": {"schedulerName": "nobody", "containers": _ANY_CONTAINER}}
            await self.kube.create(PODS, HOME, pod)
            for number in range(WARM_CHANGES // WARM_PODS):
                await self.kube.patch(PODS, HOME, f"warm-{index}", {"metadata": {"annotations": {"change": str(number)}}})
            await self.kube.delete(PODS, HOME, f"warm-{index}", grace_seconds=0)

        await asyncio.gather(*map(change, range(WARM_PODS)))

    def cpu_seconds(self) -> dict[str, float]:
        """Processor time of each part until now: what a load costs everybody, however busy the machine is."""
        return {process.name: process.cpu_seconds() for process in self._processes}

    async def mark(self) -> int:
        """A point in the history of requests, for `calls_since`."""
        await asyncio.sleep(2 * AUDIT_WAIT_SECONDS)  # the audit log is written in batches, and no event says when
        return self._audit.stat().st_size

    async def calls_since(self, mark: int, account: str) -> Counter[str]:
        """The requests that an account made since then, as `create pods`; and those of Kubernetes' Job controller, which makes
        none where there are no Jobs."""
        end = await self.mark()
        with self._audit.open("rb") as log:
            log.seek(mark)
            whole, _, _ = log.read(end - mark).rpartition(b"\n")  # the server may be in the middle of a line
        return count_calls(whole.decode(), {f"system:serviceaccount:{HOME}:{account}", JOB_CONTROLLER})


def count_calls(log: str, users: Collection[str]) -> Counter[str]:
    """Requests of these users in an audit log, by verb and resource. Watches, and the renewal of a leader's Lease, are no part of
    what a recovery costs and are left out."""
    calls: Counter[str] = Counter()
    for line in log.splitlines():
        event = json.loads(line)
        target = event.get("objectRef") or {}
        if event["user"]["username"] not in users or event["verb"] == "watch" or target.get("resource") == "leases":
            continue
        resource = "/".join(part for part in (target.get("resource"), target.get("subresource")) if part)
        calls[f"{event['verb']} {resource or event['requestURI']}"] += 1
    return calls


def _etcd(folder: Path, ports: dict[str, int]) -> list[str]:
    client, peer = (f"http://127.0.0.1:{ports[name]}" for name in ("etcd", "peer"))
    # Without fsync: the disk of whoever runs this is not what is compared.
    return [
        f"--data-dir={folder}/etcd", "--unsafe-no-fsync", f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}", "--log-level=warn", "--quota-backend-bytes=8589934592",
    ]  # fmt: skip


def _api(folder: Path, ports: dict[str, int]) -> list[str]:
    return [
        f"--etcd-servers=http://127.0.0.1:{ports['etcd']}", f"--secure-port={ports['api']}", "--bind-address=127.0.0.1",
        f"--cert-dir={folder}/api", f"--tls-cert-file={folder}/server.crt", f"--tls-private-key-file={folder}/server.key",
        f"--client-ca-file={folder}/ca.crt", f"--service-account-key-file={folder}/sa.key",
        f"--service-account-signing-key-file={folder}/sa.key", "--service-account-issuer=https://benchmark",
        "--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=RBAC",
        f"--audit-log-path={folder}/audit.log", f"--audit-policy-file={folder}/audit-policy.yaml", "--audit-log-mode=batch",
        f"--audit-log-batch-max-wait={AUDIT_WAIT_SECONDS:g}s",
    ]  # fmt: skip


def _audit_policy() -> Object:
    """A policy that logs the requests of the contenders and of the Job controller alone."""
    logged = {"level": "Metadata", "omitStages": ["RequestReceived"]}
    who = [{"userGroups": [f"system:serviceaccounts:{HOME}"]}, {"users": [JOB_CONTROLLER]}]
    return {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [*(logged | one for one in who), {"level": "None"}]}


def _kubeconfig(folder: Path, server: str, user: Object) -> str:
    authority = base64.b64encode((folder / "ca.crt").read_bytes()).decode()
    return json.dumps(
        {
            "apiVersion": "v1", "kind": "Config", "current-context": "benchmark",
            "clusters": [{"name": "benchmark", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": "benchmark", "user": user}],
            "contexts": [{"name": "benchmark", "context": {"cluster": "benchmark", "user": "benchmark"}}],
        }
    )  # fmt: skip


async def _answers(kube: Kube, api: Process) -> None:
    async def answers() -> bool:
        api.check()
        with suppress(KubeError):
            await kube.get(NAMESPACES, None, "default")
            return True
        return False

    await eventually(answers, READY_SECONDS, lambda: f"the API server does not answer:\n{api.last_words}")


async def _certificates(folder: Path) -> None:
    """An authority, the server's certificate, the administrator's, and the key of the service accounts."""

    async def openssl(*args: str | Path) -> None:
        await run("openssl", *args)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    authority = ("-keyout", folder / "ca.key", "-out", folder / "ca.crt")
    await openssl("req", "-x509", *curve, *authority, "-subj", "/CN=benchmark")
    await openssl("genrsa", "-out", folder / "sa.key", "2048")
    for name, subject, more in (
        ("server", "/CN=server", ("-addext", "subjectAltName=IP:127.0.0.1")),
        ("admin", "/O=system:masters/CN=admin", ()),
    ):
        signed = ("-CA", folder / "ca.crt", "-CAkey", folder / "ca.key")
        files = ("-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt")
        await openssl("req", "-x509", *curve, *signed, *files, "-subj", subject, *more)
