"""The code that came with the job (`ebb submit --code DIR`): verified, unpacked, and where the workers start.

    bring(os.environ, say)        # before any worker process is started; without $EBB_CODE_ARCHIVE it does nothing

The archive is a .tar.gz in the pod, small ones of a ConfigMap, large ones on the output volume; $EBB_CODE_SHA256 is its version.
It is unpacked into a fresh folder of the pod's own temporary disk, so that workers write beside their code as they would at home,
and no two workers share it. What its requirements.txt asks for is installed by packages.py. Nothing here is of torch.
"""

from __future__ import annotations

import atexit
import errno
import hashlib
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path, PurePosixPath

from ebb.elastic.contract import ENV_CODE_ARCHIVE, ENV_CODE_SHA256, ENV_PACKAGES
from ebb.elastic.launch.locate import PATIENCE_SECONDS, wait_for_file
from ebb.elastic.launch.packages import PackagesError, ensure

REQUIREMENTS = "requirements.txt"
_OURS = ("ebb", "trainer")
_PIECE = 2**20

Say = Callable[[str], None]


class CodeError(Exception):
    """The code cannot be used; the message is a sentence that names the fix. To the job it is the program that failed."""


def bring(environment: MutableMapping[str, str], say: Say) -> Path | None:
    """Unpack, install, go there, and put it on the path of the processes to come. Raises CodeError."""
    archive = environment.get(ENV_CODE_ARCHIVE)
    if not archive:
        return None
    folder = unpack(Path(archive), environment.get(ENV_CODE_SHA256, ""), say)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    paths = [folder]
    try:
        if (folder / REQUIREMENTS).is_file():
            paths.append(ensure(folder / REQUIREMENTS, _packages(environment), environment, say))
    except PackagesError as error:
        raise CodeError(str(error)) from error
    for name in _OURS:
        if (folder / name).is_dir() or (folder / f"{name}.py").exists():
            say(f"your {name} has the name of Ebb's own package: `-m {name}` starts Ebb's; rename yours to use it")
    environment["PYTHONPATH"] = os.pathsep.join([*map(str, paths), *filter(None, [environment.get("PYTHONPATH")])])
    os.chdir(folder)
    return folder


def unpack(archive: Path, sha256: str, say: Say, *, patience_seconds: float = PATIENCE_SECONDS) -> Path:
    """Into a folder of its own. Raises CodeError."""
    folder: Path | None = None
    try:
        if not wait_for_file(archive, say, patience_seconds=patience_seconds):
            raise CodeError(
                f"the job's code is not there: {archive} is no file. If it was removed from the volume, submit the job again "
                "with --code; with a manifest of your own, mount it there"
            )
        folder = Path(tempfile.mkdtemp(prefix=f"code-{sha256[:8]}-"))
        found = _digest(archive)
        if sha256 and found != sha256:
            raise CodeError(
                f"the code in {archive} is not what was submitted: its sha256 is {found[:12]}…, the job's is {sha256[:12]}…. "
                "Somebody has changed the file: submit the job again with --code, which writes it anew"
            )
        with tarfile.open(archive, "r:gz") as tar:
            _extract(tar, folder)
    except (CodeError, tarfile.TarError, zlib.error, EOFError, OSError) as error:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, CodeError):
            raise
        raise CodeError(_trouble(archive, error)) from error
    say(f"code {found[:12]} unpacked to {folder}")
    return folder


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    """Files, folders and links that stay inside, with nobody's rights but ours."""
    if hasattr(tarfile, "data_filter"):
        tar.extractall(folder, filter="data")
    else:  # Python 3.11 before its fourth patch, which Debian has
        tar.extractall(folder, members=_inside(tar))  # noqa: S202


def _inside(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield what the filter `data` lets through. Raises CodeError for anything else: `ebb` packs nothing of it."""
    for member in tar:
        name = PurePosixPath(member.name)
        if not (member.isreg() or member.isdir() or member.issym()):
            raise CodeError(f"{member.name!r} in the code is no file, folder or symbolic link: pack it with `ebb submit --code`")
        places = [name, *([name.parent / member.linkname] if member.issym() else [])]
        if any(place.is_absolute() or os.path.normpath(place).split("/")[0] == ".." for place in places):
            raise CodeError(f"{member.name!r} in the code leads out of its folder: pack it with `ebb submit --code`")
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        yield member


def _packages(environment: MutableMapping[str, str]) -> Path:
    """Shared by all workers and jobs; without a shared place, this worker's own."""
    named = environment.get(ENV_PACKAGES)
    return Path(named) if named else Path(tempfile.gettempdir()) / "ebb-packages"


def _trouble(archive: Path, error: Exception) -> str:
    if isinstance(error, getattr(tarfile, "FilterError", ())):  # there since Python 3.11.4
        return f"{error}: something in the code leads out of its folder; pack it with `ebb submit --code`"
    if isinstance(error, OSError) and error.strerror:
        words = f"the code in {archive} cannot be unpacked: {error.strerror}: {error.filename or archive}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"{words}. The pod's temporary disk is full: what the job writes belongs below its output folder"
        return f"{words}. Can user 1000 read the archive, and is there a temporary disk that it can write to?"
    return f"the code in {archive} is no .tar.gz ({error or type(error).__name__}): submit the job again with --code"
