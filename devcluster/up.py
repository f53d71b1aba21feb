"""Bring a devcluster up: all in order, from nothing, from half of one after a kill, or from a running one (seconds, no change).

    box = await up("ebb")

Machines are not booted here: the devcluster's cloud (`python -m devcluster run`, started last) boots them for node groups and
mends what died.
"""

import asyncio
import hashlib
import sys
from pathlib import Path

from devcluster import preflight, registry, tools
from devcluster.commands import locked, run, say
from devcluster.control_plane import cluster, daemons
from devcluster.images import build, environment, prepared
from devcluster.machines import cgroups, lifecycle, processes
from devcluster.machines.processes import Daemon
from devcluster.settings import CHECKOUT, EBB_HOME, Box, check_name

CLOUD = "cloud"


async def up(name: str, *, legacy_etcd: bool = False, with_pulumi: bool = False) -> Box:
    """Returns when the API server answers and the cloud runs. Raises BoxError; what was done stays, and `up` goes on from
    there. `legacy_etcd`: with an image of etcd 3.5, now and from now on. `with_pulumi`: gets Pulumi meanwhile, for a stack
    that comes next."""
    check_name(name)
    registry.check_owner(name, EBB_HOME)
    await preflight.check(EBB_HOME, with_pulumi=with_pulumi)
    async with asyncio.TaskGroup() as group:
        if with_pulumi:
            group.create_task(tools.ensure_pulumi())
        cluster_task = group.create_task(_up(name, legacy_etcd=legacy_etcd))
    return cluster_task.result()


async def _up(name: str, *, legacy_etcd: bool) -> Box:
    async with locked(EBB_HOME / "boxes" / f".{name}.lock", f"devcluster {name!r}"):
        box = await registry.register(name)
        say(f"devcluster {name}: addresses {box.network}, state in {box.folder}")
        async with asyncio.TaskGroup() as group:
            # The environment is mostly download, the programs are mostly compilation: side by side.
            installed = group.create_task(environment.ensure(EBB_HOME))
            started = group.create_task(_control_plane_and_images(box, legacy_etcd=legacy_etcd))
        programs, image_set = started.result()
        _link(box.folder / "environment", installed.result())
        box.volumes.mkdir(exist_ok=True)
        await cluster.apply(box, programs["kubectl"], image_set)
        await _bring_images(box, image_set)
        await start_cloud(box)
        say(f"devcluster {name} is up: export KUBECONFIG={box.kubeconfig}")
    return box


async def _control_plane_and_images(box: Box, *, legacy_etcd: bool) -> tuple[dict[str, Path], prepared.ImageSet]:
    programs = await _programs(legacy_etcd=legacy_etcd)
    async with asyncio.TaskGroup() as group:
        built = group.create_task(_images(programs))
        group.create_task(_control_plane(box, programs))
    return programs, built.result()


async def _programs(*, legacy_etcd: bool = False) -> dict[str, Path]:
    """Those of the devcluster, and the older etcd where it is asked for or was before."""
    programs, last = await tools.programs(), prepared.current(EBB_HOME)
    if legacy_etcd or (last is not None and build.LEGACY_ETCD in last.references):
        programs[build.LEGACY_ETCD] = await tools.ensure(tools.LEGACY_ETCD) / "etcd"
    return programs


async def _control_plane(box: Box, programs: dict[str, Path]) -> None:
    await daemons.ensure(box, programs)
    say(f"control plane is healthy: Kubernetes {tools.TOOLS['kubernetes'].version} at {box.api_url}")


async def _images(programs: dict[str, Path]) -> prepared.ImageSet:
    async with build.lock(EBB_HOME):
        return await prepared.ensure(EBB_HOME, await build.ensure(EBB_HOME, programs))


async def build_images() -> dict[str, str]:
    """Only tools and images, for `python -m devcluster images`; returns the references."""
    await preflight.check(EBB_HOME)
    return (await _images(await _programs())).references


async def load_image(name: str, archive: Path) -> str:
    """An image for `ebb submit --image`, on machines that run and on those to come; returns its reference."""
    box = Box.load(name)
    async with build.lock(EBB_HOME):
        reference = await prepared.load(EBB_HOME, archive)
    for machine in lifecycle.list_machines(box):
        if machine.alive:
            await _import(box, machine.name, reference, archive)
    return reference


async def _bring_images(box: Box, image_set: prepared.ImageSet) -> None:
    """New images reach machines that are already running."""
    for machine in lifecycle.list_machines(box):
        if machine.alive:
            await _bring_images_to(box, machine.name, image_set)


async def _bring_images_to(box: Box, machine: str, image_set: prepared.ImageSet) -> None:
    for name, reference in image_set.references.items():
        archive = build.image_of(EBB_HOME / "images", name, reference.rpartition(":")[2]).archive
        await _import(box, machine, reference, archive)


async def _import(box: Box, machine: str, reference: str, archive: Path) -> None:
    """Unless it is there."""
    ctr = [*lifecycle.enter(box, machine), "ctr", "--namespace", "k8s.io", "images"]
    if reference not in (await run(*ctr, "ls", "--quiet")).split():
        say(f"machine {machine}: loading image {reference}")
        await run(*ctr, "import", archive)


async def start_cloud(box: Box) -> None:
    """The daemon of devcluster/cloud. It is started again when its code has changed."""
    daemon = Daemon(
        name=CLOUD,
        args=[sys.executable, "-m", "devcluster", "run", "--box", box.name],
        env={"EBB_HOME": str(box.home), "PYTHONPATH": str(CHECKOUT), "EBB_CODE": _code_digest()},
    )

    async def runs() -> bool:
        # Its lock file names it once it has the devcluster to itself.
        lock = box.folder / "cloud.lock"
        return lock.exists() and lock.read_text().strip() in map(str, cgroups.members(processes.cgroup_of(box, CLOUD)))

    if await processes.ensure(box, daemon, runs):
        say("the devcluster's cloud runs: it boots machines for node groups that need them")


def _code_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(
        [
            *(CHECKOUT / "devcluster").rglob("*.py"),
            *(CHECKOUT / "ebb" / "kube").glob("*.py"),
        ]
    ):
        digest.update(path.read_bytes() if path.exists() else b"")
    return digest.hexdigest()


def _link(link: Path, target: Path) -> None:
    """`link` points to `target`, exchanged in one step."""
    if not link.is_symlink() or link.readlink() != target:
        part = link.with_name(f".{link.name}.part")
        part.unlink(missing_ok=True)
        part.symlink_to(target)
        part.replace(link)
