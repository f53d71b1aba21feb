"""The files of one machine, as pure functions of its record: containerd, CNI, kubelet and kube-proxy configuration, its init
program.

Inside a machine the usual paths hold (/run/containerd/containerd.sock), because /run is its own: see init(). Nothing is
written here.
"""

import json
import shlex
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

from devcluster.settings import REGION

SOCKET = "/run/containerd/containerd.sock"
KUBELET_ROOT = "/run/kubelet"
KUBELET_PORT = 10250
# Programs write into these fixed places of the host; a machine mounts its own over them. Made when missing, removed when empty.
PRIVATE_FOLDERS = (Path("/var/lib/cni"), Path("/var/log/containers"), Path("/var/lib/kubelet"))
GIB = 1024**3


@dataclass(frozen=True, kw_only=True)
class Host:
    """The computer that the machine is a slice of; the kubelet always sees all of it."""

    cpus: int
    memory_bytes: int
    cgroup_v2: bool


@dataclass(frozen=True, kw_only=True)
class MachineRecipe:
    """All that the files of a machine depend on."""

    name: str
    zone: str
    instance_type: str
    labels: dict[str, str]
    taints: list[dict[str, str]]
    cpu: float
    memory_gib: float
    folder: Path
    cgroup: str
    address: IPv4Address
    pods: IPv4Network
    pod_network: IPv4Network
    dns: IPv4Address
    pause_image: str
    host: Host


def containerd(plan: MachineRecipe) -> str:
    """For containerd 1.6 and later (2.x reads version 2 as well)."""
    text = f"""
version = 2
root = {json.dumps(str(plan.folder / "containerd"))}
state = "/run/containerd"
# opt would make /opt/containerd on the host; the snapshotters are not ours and complain.
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs",
"io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs"]

[grpc]
  address = "{SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = {json.dumps(plan.pause_image)}
  # Without CAP_SYS_RESOURCE (sandboxes) a score cannot be lowered.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = {json.dumps(str(plan.folder / "cni"))}
"""
    return text.lstrip()


def cni(plan: MachineRecipe) -> dict[str, Any]:
    """Every pod has a link of its own to the machine, which routes: unlike a bridge that needs no br_netfilter for Services to
    work."""
    return {
        "cniVersion": "0.4.0",
        "name": "box",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni",
                    "ranges": [[{"subnet": str(plan.pods)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
        ],
    }


def kubelet(plan: MachineRecipe) -> dict[str, Any]:
    """A KubeletConfiguration for kubelets that share one host."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": str(plan.address),
        "port": KUBELET_PORT,
        "authentication": {
            "anonymous": {"enabled": False},
            "x509": {"clientCAFile": str(plan.folder / "authority.crt")},
            "webhook": {"enabled": True},
        },
        # By default a right that is taken away is remembered for five minutes, and one that is missing for half of one.
        "authorization": {"mode": "Webhook", "webhook": {"cacheAuthorizedTTL": "1s", "cacheUnauthorizedTTL": "1s"}},
        "tlsCertFile": str(plan.folder / "kubelet.pem"),
        "tlsPrivateKeyFile": str(plan.folder / "kubelet.pem"),
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "providerID": f"box:///{plan.zone}/{plan.name}",
        "registerWithTaints": plan.taints,
        # A kubelet refuses to start on v1 since 1.35 unless it is told that this is meant.
        "failCgroupV1": plan.host.cgroup_v2,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{plan.cgroup}/pods",
        # With classes of quality containers are below cgroupRoot; without, containerd puts those of all machines into one group.
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": [],
        "systemReserved": reserved(plan),
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "podLogsDir": str(plan.folder / "pods"),
        "volumePluginDir": f"{KUBELET_ROOT}/volume-plugins",
        "resolvConf": str(plan.folder / "resolv.conf"),
        "clusterDNS": [str(plan.dns)],
        "clusterDomain": "cluster.local",
        "makeIPTablesUtilChains": False,
        # The disk is everybody's: no kubelet may throw away images or pods because the host's disk is rather full.
        "localStorageCapacityIsolation": False,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": dict.fromkeys(
            ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"), "0%"
        ),
        "serializeImagePulls": False,
        "nodeStatusUpdateFrequency": "4s",
        "nodeLeaseDurationSeconds": 10,
        # Many pods start at once on a devcluster; the defaults suit a slow cloud registry.
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "logging": {"verbosity": 1},
    }


def reserved(plan: MachineRecipe) -> dict[str, str]:
    """The host's resources beyond the machine's, so that allocatable is what the machine was ordered with."""
    cpu_milli = max(0, plan.host.cpus * 1000 - round(plan.cpu * 1000))
    memory_kib = max(0, plan.host.memory_bytes - round(plan.memory_gib * GIB)) // 1024
    return {"cpu": f"{cpu_milli}m", "memory": f"{memory_kib}Ki"}


def kube_proxy(plan: MachineRecipe) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": plan.name,
        "bindAddress": str(plan.address),
        "clusterCIDR": str(plan.pod_network),
        "clientConnection": {"kubeconfig": str(plan.folder / "kube-proxy.kubeconfig")},
        # Limits of the whole host's connection table: not ours to change.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "nftables": {"minSyncPeriod": "0s", "syncPeriod": "30s"},
        "logging": {"verbosity": 1},
    }


def node_labels(plan: MachineRecipe) -> dict[str, str]:
    return {
        **plan.labels,
        "topology.kubernetes.io/zone": plan.zone,
        "topology.kubernetes.io/region": REGION,
        "node.kubernetes.io/instance-type": plan.instance_type,
    }


def init(plan: MachineRecipe, programs: dict[str, Path]) -> str:
    """The machine's first program. It has namespaces of its own for processes, mounts and network: its end is the machine's."""

    def daemon(program: str | Path, *args: str) -> str:
        name = Path(program).name
        return f"{shlex.join([str(program), *args])} >> {shlex.quote(str(plan.folder / 'logs' / f'{name}.log'))} 2>&1"

    kubelet_args = {
        "config": plan.folder / "kubelet.yaml",
        "kubeconfig": plan.folder / "kubelet.kubeconfig",
        "root-dir": KUBELET_ROOT,
        "hostname-override": plan.name,
        "node-ip": plan.address,
        "node-labels": ",".join(f"{key}={value}" for key, value in sorted(node_labels(plan).items())),
    }
    return INIT.format(
        record=shlex.quote(str(plan.folder / "machine.json")),
        private=" ".join(["/run", *map(str, PRIVATE_FOLDERS)]),
        socket=SOCKET,
        kubelet_folder=shlex.quote(str(plan.folder / "kubelet")),
        kubelet_root=KUBELET_ROOT,
        containerd=daemon("containerd", "--config", str(plan.folder / "containerd.toml")),
        kubelet=daemon(programs["kubelet"], *(f"--{key}={value}" for key, value in kubelet_args.items())),
        kube_proxy=daemon(programs["kube-proxy"], f"--config={plan.folder / 'kube-proxy.yaml'}"),
    )


INIT = """#!/bin/bash
set -eu
# Killed while it was being booted: the record went first.
[ -e {record} ] || exit 0
ulimit -n 65536 2>/dev/null || true
for folder in {private}; do mount -t tmpfs -o mode=755 tmpfs "$folder"; done
mkdir -p /run/containerd /run/netns /run/lock {kubelet_root}
mount --bind {kubelet_folder} {kubelet_root}

{containerd} &
until [ -S {socket} ]; do sleep 0.02; kill -0 $!; done

run_kubelet() {{
  # containerd listens before its part for Kubernetes is ready; a kubelet that comes too early ends with 1.
  for attempt in $(seq 50); do
    status=0
    {kubelet} || status=$?
    [ "$status" = 1 ] || return "$status"
    sleep 0.1
  done
}}
run_kubelet &

{kube_proxy} &

# A machine that has lost one of its daemons is broken: it ends, and the cloud replaces it.
wait -n || true
"""
