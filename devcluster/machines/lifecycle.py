"""Machines of a devcluster: boot, kill, list. A machine is its own network, processes and mounts, with containerd, kubelet and
kube-proxy.

    await boot(box, spec)     # returns when its kubelet has started; the Node registers by itself
    await kill(box, name)     # like power loss

Its whole state is `<box folder>/machines/<name>/`; machine.json is written before anything is started, so whoever comes after
a kill -9 finds what to clean up. When to boot and to kill is decided by cloud/. A machine that broke is not mended: kill and
boot another.
"""

import asyncio
import json
import os
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from fcntl import LOCK_EX, flock
from pathlib import Path

import yaml

from devcluster.commands import last_lines
from devcluster.control_plane import certificates
from devcluster.images import prepared
from devcluster.machines import cgroups, machine_files, network, processes
from devcluster.machines.machine_files import KUBELET_PORT, PRIVATE_FOLDERS, Host, MachineRecipe
from devcluster.settings import MAX_MACHINES, Box, BoxError
from devcluster.tools import TOOLS, folder_of

BOOT_TIMEOUT_SECONDS = 120.0


class MachineError(BoxError):
    """A machine could not be booted; the text holds the end of its logs."""


@dataclass(frozen=True)
class MachineSpec:
    """A machine as ordered. Sizes beyond the host's are cut to the host's."""

    name: str
    zone: str
    instance_type: str
    labels: dict[str, str]
    taints: list[dict[str, str]]
    cpu: float
    memory_gib: float
    gpus: int


@dataclass(frozen=True)
class MachineRecord:
    """A machine that is there. `index` is what its addresses derive from; `alive` says that its daemons run."""

    name: str
    spec: MachineSpec
    index: int
    alive: bool


async def boot(box: Box, spec: MachineSpec) -> None:
    """Returns when the kubelet serves. Idempotent: a machine of that name that is alive is left alone, a dead one is booted
    afresh. Raises MachineError, after which nothing of the machine is left."""
    async with _locked(box, spec.name):
        if is_alive(box, spec.name):
            return
        await _remove(box, spec.name)
        index = await _record(box, spec)
        try:
            await _start(box, spec, index)
        except (BoxError, OSError) as error:
            logs = "\n".join(
                f"{name}: {last_lines(box.machines / spec.name / 'logs' / f'{name}.log', 4)}"
                for name in ("init", "containerd", "kubelet")
            )
            await _remove(box, spec.name)
            raise MachineError(f"machine {spec.name} did not boot: {error}\n{logs}") from error


async def kill(box: Box, name: str) -> None:
    """Everything on the machine dies at once; its namespaces, mounts, control group and files go. Idempotent.
    The Node object is the caller's to delete."""
    # At once, before waiting for a boot that is under way: that boot then fails and cleans up.
    await cgroups.kill(cgroup_of(box, name))
    async with _locked(box, name):
        await _remove(box, name)


def list_machines(box: Box) -> list[MachineRecord]:
    """All that have a record, by name."""
    found = []
    for file in sorted(box.machines.glob("[!.]*/machine.json")):
        with suppress(FileNotFoundError):
            record = json.loads(file.read_text())
            name = file.parent.name
            found.append(MachineRecord(name, MachineSpec(**record["spec"]), record["index"], is_alive(box, name)))
    return found


def node_ip(box: Box, name: str) -> str:
    """The machine's address. Raises MachineError when there is no such machine."""
    try:
        return str(box.machine_address(json.loads((box.machines / name / "machine.json").read_text())["index"]))
    except FileNotFoundError as error:
        raise MachineError(
            f"devcluster {box.name!r} has no machine {name!r}; it has: {[one.name for one in list_machines(box)]}"
        ) from error


def is_alive(box: Box, name: str) -> bool:
    return bool(cgroups.members(f"{cgroup_of(box, name)}/daemons"))


def cgroup_of(box: Box, name: str) -> str:
    return f"{box.cgroup}/machines/{name}"


def enter(box: Box, name: str) -> list[str]:
    """Arguments that run a program on the machine. Raises MachineError when it is not running."""
    for pid in cgroups.members(f"{cgroup_of(box, name)}/daemons"):
        with suppress(FileNotFoundError, ProcessLookupError):
            status = Path(f"/proc/{pid}/status").read_text()
            numbers = next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))
            # Number 1 in a namespace below ours: the machine's init. Containers are deeper, and not in this group.
            if len(numbers) > 1 and numbers[-1] == "1":
                return ["nsenter", f"--target={pid}", "--mount", "--net", "--pid", "--"]
    raise MachineError(f"machine {name} is not running")


async def _record(box: Box, spec: MachineSpec) -> int:
    """Writes machine.json with an index that no other machine has."""
    async with _locked(box, ".index"):
        used = {record.index for record in list_machines(box)}
        free = [index for index in range(1, MAX_MACHINES + 1) if index not in used]
        if not free:
            raise MachineError(
                f"devcluster {box.name!r} has {len(used)} machines and no address for another: use a second one (--box)"
            )
        # Any of them, not the lowest: some may still talk to the machine that just had the lowest.
        index = secrets.choice(free)
        folder = box.machines / spec.name
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / "machine.part"
        part.write_text(json.dumps({"index": index, "spec": asdict(spec)}))
        part.replace(folder / "machine.json")
    return index


async def _start(box: Box, spec: MachineSpec, index: int) -> None:
    image_set = prepared.current(box.home)
    plan = plan_of(box, spec, index, pause_image=image_set.pause if image_set else "localhost/ebb/pause:none", host=host())
    await asyncio.gather(_write_files(box, plan), network.attach(box, spec.name, index))
    if image_set:
        await asyncio.to_thread(prepared.clone, image_set.folder, plan.folder / "containerd")
    for folder in PRIVATE_FOLDERS:
        folder.mkdir(parents=True, exist_ok=True)
    cgroups.delegate(f"{plan.cgroup}/pods")
    await asyncio.to_thread(
        processes.launch,
        [
            "nsenter", f"--net=/run/netns/{box.machine_netns(spec.name)}", "--",
            "unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--propagation", "slave", "--",
            "tini", "--", "bash", str(plan.folder / "init"),
        ],
        cgroup=f"{plan.cgroup}/daemons",
        log=plan.folder / "logs" / "init.log",
    )  # fmt: skip
    await _kubelet_serves(box, plan)


async def _kubelet_serves(box: Box, plan: MachineRecipe) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    while True:
        with suppress(OSError, TimeoutError):
            _, writer = await asyncio.wait_for(asyncio.open_connection(str(plan.address), KUBELET_PORT), 1)
            writer.close()
            return
        waited = loop.time() - started
        if waited > BOOT_TIMEOUT_SECONDS:
            raise MachineError(f"its kubelet does not answer after {waited:.0f} s")
        if not is_alive(box, plan.name):
            raise MachineError("its daemons died")
        await asyncio.sleep(0.05)


async def _write_files(box: Box, plan: MachineRecipe) -> None:
    programs = {name: folder_of("kubernetes", box.home) / name for name in TOOLS["kubernetes"].programs}
    for name in ("cni", "kubelet", "logs", "pods", "containerd"):
        (plan.folder / name).mkdir(exist_ok=True)
    files = {
        "containerd.toml": machine_files.containerd(plan),
        "cni/10-box.conflist": json.dumps(machine_files.cni(plan), indent=2),
        "kubelet.yaml": yaml.safe_dump(machine_files.kubelet(plan)),
        "kube-proxy.yaml": yaml.safe_dump(machine_files.kube_proxy(plan)),
        "resolv.conf": "# The machines of a devcluster have no name server but the cluster's.\n",
        "authority.crt": certificates.authority_certificate(box),
        "init": machine_files.init(plan, programs),
    }
    for name, text in files.items():
        (plan.folder / name).write_text(text)
    shutil.copy(box.pki / "kube-proxy.kubeconfig", plan.folder)
    certificate = plan.folder / "kubelet.pem"
    await certificates.ensure(
        box, certificate, user=f"system:node:{plan.name}", group="system:nodes", names=(f"IP:{plan.address}", f"DNS:{plan.name}")
    )
    certificates.write_private(plan.folder / "kubelet.kubeconfig", certificates.kubeconfig(box, certificate))


async def _remove(box: Box, name: str) -> None:
    """Nothing of the machine is left; also of half a machine."""
    await cgroups.kill(cgroup_of(box, name))
    await cgroups.remove(cgroup_of(box, name))
    folder = box.machines / name
    with suppress(FileNotFoundError):
        await network.detach(box, name, json.loads((folder / "machine.json").read_text())["index"])
        # The record goes in one step and last, the files after it.
        folder.rename(box.machines / f".gone-{name}-{secrets.token_hex(3)}")
    await network.remove_namespace(box.machine_netns(name))
    for gone in box.machines.glob(f".gone-{name}-*"):
        await asyncio.to_thread(shutil.rmtree, gone, ignore_errors=True)
    (box.machines / f".{name}.lock").unlink(missing_ok=True)


def plan_of(box: Box, spec: MachineSpec, index: int, *, pause_image: str, host: Host) -> MachineRecipe:
    return MachineRecipe(
        name=spec.name,
        zone=spec.zone,
        instance_type=spec.instance_type,
        labels=spec.labels,
        taints=spec.taints,
        cpu=spec.cpu,
        memory_gib=spec.memory_gib,
        folder=box.machines / spec.name,
        cgroup=cgroup_of(box, spec.name),
        address=box.machine_address(index),
        pods=box.machine_pods(index),
        pod_network=box.pod_network,
        dns=box.dns_address,
        pause_image=pause_image,
        host=host,
    )


def host() -> Host:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Host(cpus=os.cpu_count() or 1, memory_bytes=memory, cgroup_v2=cgroups.is_v2(cgroups.hierarchies()))


@asynccontextmanager
async def _locked(box: Box, name: str) -> AsyncIterator[None]:
    """One boot or kill of a machine at a time, also among processes; the kernel frees it if we are killed."""
    box.machines.mkdir(parents=True, exist_ok=True)
    path = box.machines / f".{name}.lock"
    while True:
        with path.open("w") as file:
            await asyncio.to_thread(flock, file, LOCK_EX)
            # Whoever removed the machine removed the lock with it: what we hold may be no longer what others see.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield
                return
