"""The checks before anything is made: installs Debian packages that are missing, and says what else a devcluster needs.

await check(home)        # raises PreflightError with one sentence per problem and what to do
"""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from devcluster import tools
from devcluster.commands import CommandError, is_root, run, watch
from devcluster.images import build, environment
from devcluster.images.base import base_key
from devcluster.machines import cgroups
from devcluster.machines.cgroups import Hierarchy
from devcluster.settings import BoxError

ELSEWHERE = (
    "Or use any other Kubernetes (kind, minikube, a cluster of yours): name its kubeconfig in Pulumi.local.yaml "
    "(ebb:local: kubeconfig) and give `facts` there; its own nodes then take the place of the devcluster's machines."
)
GB = 10**9
# Debian package -> what of it is used: a program on PATH, or a file.
PACKAGES = {
    "buildah": ("buildah",),
    "busybox-static": (str(build.BUSYBOX),),
    "conntrack": ("conntrack",),
    "containerd": ("containerd", "ctr"),
    "containernetworking-plugins": ("/usr/lib/cni/ptp", "/usr/lib/cni/host-local", "/usr/lib/cni/loopback"),
    "debian-archive-keyring": ("/usr/share/keyrings/debian-archive-keyring.gpg",),
    "debootstrap": ("debootstrap",),
    "iproute2": ("ip",),
    "iptables": ("iptables",),
    "nftables": ("nft",),
    "openssl": ("openssl",),
    "runc": ("runc",),
    "tini": ("tini",),
    "util-linux": ("unshare", "nsenter", "setpriv"),
}
CONTROLLERS = frozenset({"cpu", "memory", "pids"})


class PreflightError(BoxError):
    """This machine cannot hold a devcluster (yet)."""


@dataclass(frozen=True, kw_only=True)
class Disk:
    """Free bytes where EBB_HOME is or will be, and what is still to be written there."""

    folder: Path
    free: int
    needed: int


async def check(home: Path, *, with_pulumi: bool = False) -> None:
    """Nothing is made when this raises, but for Debian packages."""
    problems = [problem for problem in (root_problem(sys.platform, is_root()) or cgroup_problem(),) if problem]
    if not problems:
        problems += await _install_packages()
    to_build = await tools.to_build(home, (*tools.BOX_TOOLS, *(("pulumi",) if with_pulumi else ())))
    if to_build and (problem := await tools.go_problem()):
        problems.append(f"{problem}; it builds {', '.join(f'{tool.name} {tool.version}' for tool in to_build)}")
    if problem := disk_problem(disk(home, builds=bool(to_build))):
        problems.append(problem)
    if problems:
        raise PreflightError(
            "\n".join(["this machine cannot hold a devcluster:", *(f"  - {problem}" for problem in problems), ELSEWHERE])
        )


def root_problem(platform: str, root: bool) -> str:
    if platform != "linux":
        return f"its machines are Linux namespaces and this is {platform!r}: run it on Linux, e.g. in a virtual machine"
    if not root:
        return "its machines are network namespaces with containers, which only root can make: repeat it as root (sudo make up)"
    return ""


def cgroup_problem(
    trees: list[Hierarchy] | None = None, writable: Callable[[Path], bool] = lambda path: os.access(path, os.W_OK)
) -> str:
    """v1 trees and v2 will do, when they are mounted and ours to write."""
    if sys.platform != "linux":
        return ""
    trees = cgroups.hierarchies() if trees is None else trees
    if not trees:
        return "no writable control groups below /sys/fs/cgroup: mount them (in a container: --privileged --cgroupns=host)"
    if locked := [str(tree.root) for tree in trees if not writable(tree.root)]:
        return f"control groups at {', '.join(locked)} cannot be written: in a container, start it with --privileged"
    if cgroups.is_v2(trees):
        there = set(_read(trees[0].root / "cgroup.controllers").split())
    else:
        there = {name for tree in trees for name in tree.controllers}
    if missing := CONTROLLERS - there:
        names = ",".join(sorted(missing))
        return f"the kernel offers no control group for {names}: boot it with cgroup_enable={names}"
    return ""


def missing_packages(has: Callable[[str], bool] | None = None) -> list[str]:
    has = has or (lambda used: Path(used).exists() if used.startswith("/") else shutil.which(used) is not None)
    return [package for package, used in PACKAGES.items() if not all(map(has, used))]


def disk(home: Path, *, builds: bool = True) -> Disk:
    existing = next(path for path in (home, *home.parents) if path.exists())
    needed = 1 * GB
    if not environment.folder_of(home).exists():
        needed += 7 * GB
    if not all(tools.is_ready(name, home) for name in tools.BOX_TOOLS):
        needed += 5 * GB if builds else 1 * GB  # 0.7 GB of programs, the rest is Go's build cache
    if not build.image_of(home / "images", "base", base_key(build.BASE)).archive.exists():
        needed += 3 * GB
    return Disk(folder=existing, free=shutil.disk_usage(existing).free, needed=needed)


def disk_problem(found: Disk) -> str:
    if found.free >= found.needed:
        return ""
    return (
        f"{found.folder} has {found.free / GB:.1f} GB free and {found.needed / GB:.0f} GB are needed: make room, "
        "or set EBB_HOME to a folder on a larger disk"
    )


async def _install_packages() -> list[str]:
    """Installs what is missing; returns what is still a problem."""
    missing = missing_packages()
    if not missing:
        return []
    if shutil.which("apt-get") is None:
        return [f"programs are missing that Debian has in {', '.join(missing)}: install your distribution's packages for them"]
    log = Path("/tmp/ebb-apt.log")  # noqa: S108 - there is no devcluster and no folder yet
    apt = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "-y", "--no-install-recommends"]
    # A killed dpkg leaves the machine's package database half-done: it runs to its end without us, and a former one is
    # finished first.
    script = 'dpkg --configure -a && "$@" update && "$@" install $PACKAGES'
    try:
        await watch(
            f"installing Debian packages {' '.join(missing)}", ["sh", "-c", script, "apt", *apt], log=log, outlives_us=True,
            env={"DEBIAN_FRONTEND": "noninteractive", "PACKAGES": " ".join(missing)},
        )  # fmt: skip
    except CommandError as error:
        return [f"Debian packages are missing and could not be installed: {error}; try: apt-get install {' '.join(missing)}"]
    log.unlink()
    await _stop_service_of("containerd")
    return [f"package {package} is installed but its program is not found" for package in missing_packages()]


async def _stop_service_of(unit: str) -> None:
    """Debian starts a containerd for the whole host; machines have their own. Ours to stop, since we have just installed it."""
    if Path("/run/systemd/system").exists():
        await run("systemctl", "disable", "--now", unit)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
