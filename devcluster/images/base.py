"""The root file system of the base image: Debian bookworm with Python 3.11, pip, tini, busybox and certificates, by debootstrap.

bookworm because its Python is 3.11, for which the training environment that pods mount is built. Where registries can be reached
`docker build` takes python:3.11-slim-bookworm instead, which is the same system.
"""

import asyncio
import hashlib
import shutil
import tempfile
from pathlib import Path

from devcluster.commands import CommandError, last_lines, run, say, watch

SUITE = "bookworm"
PACKAGES = ("python3", "python3-pip", "tini", "busybox-static", "ca-certificates")
UNWANTED = ("var/cache/apt", "var/lib/apt/lists", "var/log", "debootstrap")
UNWANTED_SHARED = ("doc", "man", "info", "locale")
PAUSES_SECONDS = (5, 20, 60)  # between tries: mirrors have been seen to refuse for a moment
TIDYING = 1  # to be raised when _tidy() changes what is in the image


def base_key(dockerfile: str) -> str:
    recipe = (SUITE, PACKAGES, UNWANTED, UNWANTED_SHARED, TIDYING, dockerfile)
    return hashlib.sha256(repr(recipe).encode()).hexdigest()[:12]


async def make_base_archive(archive: Path, log: Path) -> None:
    """Some 45 s, mostly downloads."""
    with tempfile.TemporaryDirectory(prefix=".root-", dir=archive.parent) as work:
        root = await _installed(Path(work), log)
        _tidy(root)
        await watch("packing the base image", ["tar", "-C", str(root), "-cf", str(archive), "."], log=log.with_name("tar.log"))


async def _installed(work: Path, log: Path, pauses: tuple[float, ...] = PAUSES_SECONDS) -> Path:
    """A mirror that fails is asked again after each pause, from nothing. Raises CommandError."""
    root, mirror = work / f"root-{len(pauses)}", await _mirror()
    args = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(root)]
    try:
        await watch(f"installing Debian {SUITE} for the base image", [*args, *([mirror] if mirror else [])], log=log)
    except CommandError as error:
        # What its downloads said is in a log of its own, which goes with the folder.
        said = f"{error}\n{last_lines(root / 'debootstrap/debootstrap.log', 5)}"
        if not pauses:
            raise CommandError(said) from None
        say(f"{said}\nonce more in {pauses[0]:g} s")
        await asyncio.sleep(pauses[0])
        return await _installed(work, log, pauses[1:])
    return root


def _tidy(root: Path) -> None:
    for path in (*UNWANTED, *(f"usr/share/{name}" for name in UNWANTED_SHARED)):
        shutil.rmtree(root / path, ignore_errors=True)
    (root / "var/log").mkdir()
    # As in python:3.11-slim: `python` is there, and pip installs for the system.
    (root / "usr/bin/python").symlink_to("python3")
    (root / "usr/lib/python3.11/EXTERNALLY-MANAGED").unlink(missing_ok=True)
    (root / "etc/pip.conf").touch()


async def _mirror() -> str:
    """The mirror of this host's own packages, if it runs the same Debian; "" is debootstrap's choice."""
    lines = await run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages")
    for line in lines.splitlines():
        address, _, rest = line.partition(" ")
        if rest == f"{SUITE} main":
            return address
    return ""
