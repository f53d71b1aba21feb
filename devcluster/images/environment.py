"""The training environment: trainer/requirements.txt installed into one folder, which all pods of a box mount read-only.

    folder = await ensure(home)       # <EBB_HOME>/environment/<hash>/, some 90 s and 6 GB the first time

The same folder joins the virtual environment of the checkout through a .pth file, so that torch is installed once.
On a cloud the trainer image carries all this itself.
"""

import hashlib
import platform
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

from devcluster.commands import CommandError, locked, watch
from devcluster.settings import CHECKOUT, BoxError

REQUIREMENTS = CHECKOUT / "trainer" / "requirements.txt"
PYTHON = (3, 11)  # of the base image (Debian bookworm): compiled modules fit one minor version


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
    partial = Path(tempfile.mkdtemp(prefix=".", suffix="-partial", dir=folder.parent))
    partial.chmod(0o755)
    args = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-input",
        "--progress-bar=off",
        f"--target={partial}",
        f"--requirement={REQUIREMENTS}",
    ]
    try:
        await watch("installing the training environment (torch, some 6 GB)", args, log=folder.parent / "pip.log")
    except CommandError as error:
        shutil.rmtree(partial)
        raise EnvironmentProblem(str(error)) from error
    partial.rename(folder)
