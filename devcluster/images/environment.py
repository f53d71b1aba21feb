"""The training environment: trainer/requirements.txt installed into one folder, which all pods of a cluster mount read-only.

    folder = await ensure(home)       # <EBB_HOME>/environment/<hash>/, some 90 s and 6 GB the first time; CPU: 2 GB

The same folder joins the virtual environment of the checkout through a .pth file, so that torch is installed once.
On a cloud the trainer image carries all this itself.
"""

import hashlib
import importlib.util
import platform
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

from devcluster.commands import CommandError, locked, say, watch
from devcluster.downloads import answers, url_of
from devcluster.settings import CHECKOUT, BoxError

REQUIREMENTS = CHECKOUT / "trainer" / "requirements.txt"
PYTHON = (3, 11)  # of the base image (Debian bookworm): compiled modules fit one minor version
# torch for CPUs: without CUDA's libraries, 5 GB that pods on this machine never load.
CPU_WHEELS = ("download.pytorch.org", "whl/cpu")
GPU = Path("/dev/nvidia0")


class EnvironmentProblem(BoxError):
    """The environment could not be installed."""


def folder_of(home: Path) -> Path:
    lines = [line.partition("#")[0].strip() for line in REQUIREMENTS.read_text().splitlines()]
    wanted = "\n".join([f"{PYTHON} {platform.machine()}", *(line for line in lines if line)])
    return home / "environment" / hashlib.sha256(wanted.encode()).hexdigest()[:12]


async def ensure(home: Path) -> Path:
    """Raises EnvironmentProblem."""
    folder = folder_of(home)
    if not folder.exists():
        async with locked(home / "environment" / "lock", "the installation of the training environment"):
            if not folder.exists():
                await _install(folder)
    join_virtual_environment(folder)
    return folder


def join_virtual_environment(folder: Path) -> None:
    """Makes the environment importable in the virtual environment that runs us; nothing outside of one."""
    if sys.prefix == sys.base_prefix:
        return
    pth = Path(sysconfig.get_path("purelib")) / "ebb-environment.pth"
    if not pth.exists() or pth.read_text() != f"{folder}\n":
        pth.write_text(f"{folder}\n")


async def _install(folder: Path) -> None:
    if sys.version_info[:2] != PYTHON:
        raise EnvironmentProblem(
            f"Python {platform.python_version()} runs this, but the pods' Python is {PYTHON[0]}.{PYTHON[1]}: "
            f"make the virtual environment with that version (python{PYTHON[0]}.{PYTHON[1]} -m venv .venv) and repeat"
        )
    for stale in folder.parent.glob(".*-partial"):
        shutil.rmtree(stale)
    cpu_index = await _cpu_index()
    partial = Path(tempfile.mkdtemp(prefix=".", suffix="-partial", dir=folder.parent))
    partial.chmod(0o755)
    size = "2" if cpu_index else "6"
    try:
        await watch(
            f"installing the training environment (torch, some {size} GB)",
            installer(partial, cpu_index, uv=importlib.util.find_spec("uv") is not None),
            log=folder.parent / "install.log",
        )
    except CommandError as error:
        shutil.rmtree(partial)
        raise EnvironmentProblem(str(error)) from error
    partial.rename(folder)


def installer(target: Path, cpu_index: str | None, *, uv: bool) -> list[str]:
    """The command that installs REQUIREMENTS into `target`, by uv where this Python has it, else by pip."""
    files = [f"--target={target}", f"--requirement={REQUIREMENTS}"]
    if not uv:
        more = [f"--extra-index-url={cpu_index}"] if cpu_index else []
        return [sys.executable, "-m", "pip", "install", "--no-input", "--progress-bar=off", *more, *files]
    # The index of the CPU wheels has some other packages too, in versions of its own choice: the best of both indexes counts,
    # and 2.13.0+cpu is better than 2.13.0.
    more = [f"--index={cpu_index}", "--index-strategy=unsafe-best-match"] if cpu_index else []
    # As pip does by itself: pods mount the folder read-only, and torch takes seconds longer to import without bytecode.
    flags = [f"--python={sys.executable}", "--no-progress", "--compile-bytecode"]
    return [sys.executable, "-m", "uv", "pip", "install", *flags, *more, *files]


async def _cpu_index() -> str | None:
    """URL of the index with torch's CPU wheels, if those are wanted and it answers. Says which wheel is taken."""
    if GPU.exists():
        say(f"torch: the ordinary wheel, with CUDA: this machine has a GPU ({GPU})")
        return None
    site, path = CPU_WHEELS
    if not await answers(site, f"{path}/torch/"):
        say(f"torch: the ordinary wheel, with CUDA: {site} does not answer")
        return None
    say(f"torch: the CPU wheel of {site}")
    return url_of(site, path)
