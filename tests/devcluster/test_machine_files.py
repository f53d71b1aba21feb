"""The generated configuration of a machine, for hosts with control groups v1 and v2."""

import tomllib
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from devcluster.machines import machine_files
from devcluster.machines.machine_files import GIB, Host, MachineRecipe

V1 = Host(cpus=4, memory_bytes=16 * GIB, cgroup_v2=False)
V2 = Host(cpus=4, memory_bytes=16 * GIB, cgroup_v2=True)
PROGRAMS = {"kubelet": Path("/tools/kubelet"), "kube-proxy": Path("/tools/kube-proxy")}


def plan(host: Host = V1, *, cpu: float = 2, memory_gib: float = 8, folder: str = "/b/m") -> MachineRecipe:
    return MachineRecipe(
        name="spot-x",
        zone="local-b",
        instance_type="g4dn.xlarge",
        labels={"box.ebb.dev/node-group": "spot"},
        taints=[{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
        cpu=cpu,
        memory_gib=memory_gib,
        folder=Path(folder),
        cgroup="ebb/test/machines/spot-x",
        address=IPv4Address("10.210.0.2"),
        pods=IPv4Network("10.210.1.0/24"),
        pod_network=IPv4Network("10.210.0.0/17"),
        dns=IPv4Address("10.210.240.10"),
        pause_image="localhost/ebb/pause:1",
        host=host,
    )


@pytest.mark.parametrize(("host", "fails_on_v1"), [(V1, False), (V2, True)], ids=["cgroup v1", "cgroup v2"])
def test_kubelet_on_both_kinds_of_control_groups(host: Host, fails_on_v1: bool) -> None:
    config = machine_files.kubelet(plan(host))
    assert config["failCgroupV1"] is fails_on_v1
    assert config["cgroupDriver"] == "cgroupfs"
    assert config["cgroupRoot"] == "/ebb/test/machines/spot-x/pods"
    assert config["enforceNodeAllocatable"] == []


def test_kubelets_on_one_host_share_nothing() -> None:
    first = machine_files.kubelet(plan(folder="/b/one"))
    second = machine_files.kubelet(plan(folder="/b/two"))
    own = {key for key in first if first[key] != second[key]}
    assert own == {"authentication", "tlsCertFile", "tlsPrivateKeyFile", "podLogsDir", "resolvConf"}


def test_kubelet_registers_with_the_taints_and_the_zone() -> None:
    config = machine_files.kubelet(plan())
    assert config["registerWithTaints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    assert config["clusterDNS"] == ["10.210.240.10"]
    assert machine_files.node_labels(plan()) == {
        "box.ebb.dev/node-group": "spot",
        "topology.kubernetes.io/zone": "local-b",
        "topology.kubernetes.io/region": "local",
        "node.kubernetes.io/instance-type": "g4dn.xlarge",
    }


def test_a_full_disk_of_the_host_evicts_nobody() -> None:
    config = machine_files.kubelet(plan())
    assert set(config["evictionHard"].values()) == {"0%"}
    assert config["imageGCHighThresholdPercent"] == 100


@pytest.mark.parametrize(
    ("cpu", "memory_gib", "expected"),
    [
        (2, 8, {"cpu": "2000m", "memory": f"{8 * 1024 * 1024}Ki"}),
        (0.5, 0.25, {"cpu": "3500m", "memory": f"{int(15.75 * 1024 * 1024)}Ki"}),
        (4, 16, {"cpu": "0m", "memory": "0Ki"}),
        (96, 768, {"cpu": "0m", "memory": "0Ki"}),
    ],
    ids=["half of the host", "a small piece", "all of the host", "more than the host"],
)
def test_allocatable_is_what_was_ordered(cpu: float, memory_gib: float, expected: dict[str, str]) -> None:
    assert machine_files.reserved(plan(cpu=cpu, memory_gib=memory_gib)) == expected


def test_containerd_is_the_machines_own() -> None:
    config = tomllib.loads(machine_files.containerd(plan()))
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    assert config["version"] == 2
    assert config["root"] == "/b/m/containerd"
    assert config["grpc"]["address"] == "/run/containerd/containerd.sock"
    assert cri["sandbox_image"] == "localhost/ebb/pause:1"
    assert cri["restrict_oom_score_adj"] is True
    assert cri["containerd"]["runtimes"]["runc"]["options"] == {"SystemdCgroup": False}
    assert cri["cni"]["conf_dir"] == "/b/m/cni"


def test_pods_get_addresses_of_the_machine_and_no_bridge() -> None:
    config = machine_files.cni(plan())
    assert [plugin["type"] for plugin in config["plugins"]] == ["ptp"]
    assert config["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.210.1.0/24"}]]


def test_kube_proxy_leaves_the_hosts_limits_alone() -> None:
    config = machine_files.kube_proxy(plan())
    assert config["mode"] == "nftables"
    assert config["clusterCIDR"] == "10.210.0.0/17"
    assert config["conntrack"] == {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}


def test_init_hides_the_hosts_folders_before_it_starts_anything() -> None:
    script = machine_files.init(plan(folder="/b/a folder"), PROGRAMS).splitlines()
    position = {
        word: next(number for number, line in enumerate(script) if word in line)
        for word in ("machine.json", "tmpfs", "containerd --config")
    }
    assert position["machine.json"] < position["tmpfs"] < position["containerd --config"]
    assert all(str(folder) in script[position["tmpfs"]] for folder in machine_files.PRIVATE_FOLDERS)
    assert "'/b/a folder/machine.json'" in script[position["machine.json"]]
    assert script[-1] == "wait -n || true"
