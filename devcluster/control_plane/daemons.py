"""The control plane of a devcluster: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, in its network namespace.

`ensure(box, tools)` starts what does not run, leaves the rest alone, and returns when all are healthy. The API is at
box.api_url, for the host, the machines and their pods alike; box.kubeconfig is the administrator's. What runs in the cluster:
cluster.py.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from devcluster.control_plane import certificates
from devcluster.machines import network, processes
from devcluster.machines.processes import Daemon
from devcluster.settings import API_PORT, Box, BoxError

ETCD_HEALTH_PORT = 2381
CONTROLLERS_PORT = 10257
SCHEDULER_PORT = 10259
RESEARCHERS = "ebb:researchers"  # the group of workloads/manifests/researcher.yaml
SCHEDULER_CONFIG = "scheduler.yaml"
DAEMONS = ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")
"""In the order in which they may be stopped."""


async def ensure(box: Box, tools: dict[str, Path]) -> None:
    """`tools` maps a program's name to its file. Raises ProcessError when a daemon does not come up."""
    await network.set_up(box)
    await certify(box)
    etcd, apiserver, controllers, scheduler = daemons(box, tools)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:

        def healthy(url: str) -> Callable[[], Awaitable[bool]]:
            return lambda: answers_ok(session, url)

        await processes.ensure(box, etcd, healthy(f"http://{box.address}:{ETCD_HEALTH_PORT}/health"))
        await processes.ensure(box, apiserver, healthy(f"{box.api_url}/readyz"))
        await asyncio.gather(
            processes.ensure(box, controllers, healthy(f"https://{box.address}:{CONTROLLERS_PORT}/healthz")),
            processes.ensure(box, scheduler, healthy(f"https://{box.address}:{SCHEDULER_PORT}/healthz")),
        )


async def health(box: Box) -> dict[str, bool]:
    """Which parts answer, for `status`."""
    urls = {
        "etcd": f"http://{box.address}:{ETCD_HEALTH_PORT}/health",
        "kube-apiserver": f"{box.api_url}/readyz",
        "kube-controller-manager": f"https://{box.address}:{CONTROLLERS_PORT}/healthz",
        "kube-scheduler": f"https://{box.address}:{SCHEDULER_PORT}/healthz",
    }
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=3)) as session:
        return dict(zip(urls, await asyncio.gather(*(answers_ok(session, url) for url in urls.values())), strict=True))


async def answers_ok(session: aiohttp.ClientSession, url: str) -> bool:
    # Only whether it lives is asked, and some of these certificates are made by the daemon itself: nothing to verify them
    # against.
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    try:
        async with session.get(url, ssl=unverified) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


async def certify(box: Box) -> None:
    """All certificates and kubeconfigs of the control plane."""
    await certificates.ensure_authority(box)
    (box.pki / "authority.crt").write_text(certificates.authority_certificate(box))
    names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost")
    addresses = (box.address, box.service_network[1], "127.0.0.1")
    server = tuple(f"DNS:{name}" for name in names) + tuple(f"IP:{address}" for address in addresses)
    masters = "system:masters"
    await asyncio.gather(
        certificates.ensure(box, box.pki / "kube-apiserver.pem", user="kube-apiserver", names=server),
        certificates.ensure(box, box.pki / "kubelet-client.pem", user="kube-apiserver-kubelet-client", group=masters),
        _kubeconfig(box, "controller-manager.kubeconfig", "system:kube-controller-manager"),
        _kubeconfig(box, "scheduler.kubeconfig", "system:kube-scheduler"),
        _kubeconfig(box, "kube-proxy.kubeconfig", "system:kube-proxy"),
    )
    (box.folder / SCHEDULER_CONFIG).write_text(yaml.safe_dump(scheduler_config(box)))
    await _person(box, box.researcher_kubeconfig, "ebb-box-researcher", RESEARCHERS)
    await _person(box, box.kubeconfig, "ebb-box-admin", masters)


async def _person(box: Box, path: Path, user: str, group: str) -> None:
    """A kubeconfig for people; written anew only where it differs, as stacks and shells hold on to the file."""
    certificate = await certificates.ensure(box, box.pki / f"{user.removeprefix('ebb-box-')}.pem", user=user, group=group)
    text = certificates.kubeconfig(box, certificate)
    if not path.exists() or path.read_text() != text:
        certificates.write_private(path, text)


async def _kubeconfig(box: Box, file: str, user: str) -> None:
    certificate = await certificates.ensure(box, (box.pki / file).with_suffix(".pem"), user=user)
    if not (box.pki / file).exists():
        certificates.write_private(box.pki / file, certificates.kubeconfig(box, certificate))


def daemons(box: Box, tools: dict[str, Path]) -> tuple[Daemon, Daemon, Daemon, Daemon]:
    """The four, in the order in which they start."""

    def daemon(name: str, flags: dict[str, object]) -> Daemon:
        return Daemon(name=name, args=[str(tools[name]), *(f"--{key}={value}" for key, value in flags.items())], netns=box.netns)

    return (
        daemon("etcd", _etcd(box)),
        daemon("kube-apiserver", _apiserver(box)),
        daemon("kube-controller-manager", _controllers(box)),
        daemon("kube-scheduler", _scheduler(box)),
    )


def _etcd(box: Box) -> dict[str, object]:
    return {
        "name": "box",
        "data-dir": box.folder / "etcd",
        # Loopback of the namespace: machines and the host cannot reach it, hence no certificates.
        "listen-client-urls": "http://127.0.0.1:2379",
        "advertise-client-urls": "http://127.0.0.1:2379",
        "listen-peer-urls": "http://127.0.0.1:2380",
        "listen-metrics-urls": f"http://{box.address}:{ETCD_HEALTH_PORT}",
        # A box survives the death of its processes, not that of the host: what the page cache holds is safe enough, and much
        # faster.
        "unsafe-no-fsync": "true",
        "auto-compaction-retention": "1h",
        "log-level": "warn",
    }


def _apiserver(box: Box) -> dict[str, object]:
    return {
        "etcd-servers": "http://127.0.0.1:2379",
        "bind-address": "0.0.0.0",  # noqa: S104 - of the devcluster's own namespace
        "advertise-address": box.address,
        "secure-port": API_PORT,
        "service-cluster-ip-range": box.service_network,
        "authorization-mode": "Node,RBAC",
        "client-ca-file": box.pki / "authority.crt",
        "tls-cert-file": box.pki / "kube-apiserver.pem",
        "tls-private-key-file": box.pki / "kube-apiserver.pem",
        "kubelet-client-certificate": box.pki / "kubelet-client.pem",
        "kubelet-client-key": box.pki / "kubelet-client.pem",
        # Names of machines resolve nowhere: logs and exec go by address.
        "kubelet-preferred-address-types": "InternalIP",
        "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
        "service-account-key-file": certificates.service_account_key(box),
        "service-account-signing-key-file": certificates.service_account_key(box),
        # For `down` and kill -9: open watches need no minute of grace.
        "shutdown-delay-duration": "0s",
    }


def _controllers(box: Box) -> dict[str, object]:
    kubeconfig = box.pki / "controller-manager.kubeconfig"
    return {
        "kubeconfig": kubeconfig,
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "service-account-private-key-file": certificates.service_account_key(box),
        "root-ca-file": box.pki / "authority.crt",
        "use-service-account-credentials": "true",
        # Machines know their pods' network from their index.
        "allocate-node-cidrs": "false",
        "leader-elect": "false",
    }


def _scheduler(box: Box) -> dict[str, object]:
    kubeconfig = box.pki / "scheduler.kubeconfig"
    return {
        "config": box.folder / SCHEDULER_CONFIG,
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
    }


def scheduler_config(box: Box) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(box.pki / "scheduler.kubeconfig")},
        "leaderElection": {"leaderElect": False},
        # Pods wait for machines that boot in seconds here: the default, doubling to 10 s, would be the longest part of the wait.
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 1,
    }


async def remove(box: Box) -> None:
    """Stops the daemons at once. Their data goes with the devcluster's folder."""
    for name in DAEMONS:
        await processes.stop(box, name)


def require_healthy(box: Box) -> None:
    """Raises BoxError when the API server does not run."""
    if not processes.is_alive(box, "kube-apiserver"):
        raise BoxError(f"devcluster {box.name!r} is not up; start it with: python -m devcluster up --box {box.name}")
