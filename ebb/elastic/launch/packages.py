"""What a requirements.txt asks for beyond the image: installed once for all workers and all jobs with the same one.

    folder = ensure(Path("requirements.txt"), Path("/mnt/output/.ebb/packages"), os.environ, say)      # for PYTHONPATH

One folder for each content: the file, what it refers to, Python and torch. It comes to be whole or not at all (a temporary one,
renamed), by one worker under a lease (lease.py), and is never changed. The image's own packages stay as they are, torch above
all: pip may add to them and replace none. pip is asked first what is missing, and then told to put just that into the folder,
because `pip install --target` alone would put a second torch there. It knows nothing of archives: code.py does.
"""

import contextlib
import errno
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ebb.elastic.checkpoint.files import Disk, look, write_whole
from ebb.elastic.contract import ENV_JOB, ENV_WORKER_INDEX
from ebb.elastic.launch.lease import Turn
from ebb.elastic.launch.pip import PipError, run
from ebb.elastic.launch.requirements import is_local, options

_FAILED, _LOCK, _PARTIAL = ".failed", ".lock", ".partial-"
_ABANDONED_SECONDS = 3600.0
_VERSION = re.compile(r"[\d.!]+((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[\w.]+)?")  # pip refuses a constraint of any other
_TOOLS = ("pip", "setuptools", "wheel")
_DIGITS, _FEW_DIGITS = 16, 8

Say = Callable[[str], None]


class PackagesError(Exception):
    """They could not be installed; the message says why and names the fix."""


def ensure(requirements: Path, root: Path, environment: Mapping[str, str], say: Say) -> Path:
    """The folder, made if it is not there. Raises PackagesError."""
    folder = root / key(requirements)
    try:
        root.mkdir(parents=True, exist_ok=True)
        return _ensure(requirements, folder, environment, say)
    except OSError as error:
        raise PackagesError(
            f"{requirements.name} cannot be installed into {root}: {error.strerror or error}. {_cure(error)}, or put the "
            "packages into an image of your own (--image)"
        ) from error


def key(requirements: Path) -> str:
    """The name of the folder: the same for the same content, on the same Python, with the same torch."""
    text = requirements.read_text(encoding="utf-8", errors="replace")
    digest = hashlib.sha256()
    for part in (text, platform.python_version(), platform.machine(), version_of("torch")):
        digest.update(part.encode() + b"\0")
    if is_local(requirements):
        _add_folder(digest, requirements.parent)  # other files of the code say what is installed
    return digest.hexdigest()[:_DIGITS]


def constraints() -> dict[str, str]:
    """Every package that the image has, with its version: what comes first on the path counts. Tools that install are not of it:
    many a machine has two of them, and a program needs none."""
    found: dict[str, str] = {}
    for each in importlib.metadata.distributions():
        name = each.metadata["Name"]
        if name and _VERSION.fullmatch(each.version or ""):
            found.setdefault(_plain(name), each.version)
    return {name: version for name, version in found.items() if name not in _TOOLS}


def version_of(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _ensure(requirements: Path, folder: Path, environment: Mapping[str, str], say: Say) -> Path:
    failure = folder.with_name(f"{folder.name}-{_settings(environment)}{_FAILED}")
    disk = Disk()

    def done() -> bool:
        """Also where another worker has failed at it, while this one waited: it would fail again."""
        return folder.name in look(disk, folder.parent) or (turn.waited and failure.exists())

    turn = Turn(path=folder.with_name(folder.name + _LOCK), holder=_me(environment), say=say, doing="installs requirements.txt")
    with turn.take(done) as mine:
        if mine:
            failure.unlink(missing_ok=True)
            try:
                _install(requirements, folder, say)
            except PipError as error:
                write_whole(disk, failure, str(error).encode())
                raise PackagesError(str(error)) from error
        elif not folder.is_dir():
            raise PackagesError(f"as another worker found: {failure.read_text()}")
    return folder


def _install(requirements: Path, folder: Path, say: Say) -> None:
    """Into a temporary folder beside it, and renamed when all is on the disk. Raises PipError."""
    _clear(folder)
    began = time.monotonic()
    partial = folder.with_name(f"{folder.name}{_PARTIAL}{secrets.token_hex(4)}")
    partial.mkdir()
    try:
        own = constraints()
        say(f"installing {requirements.name} for this job and all later ones with the same")
        missing = _missing(requirements, partial, own, say)
        names = [f"{each['metadata']['name']} {each['metadata']['version']}" for each in missing]
        if missing:
            listed = partial / "missing.txt"
            listed.write_text("".join(f"{each}\n" for each in [*options(requirements), *map(line, missing)]))
            run(["install", "--no-deps", "--target", str(partial / "new"), "--requirement", str(listed)], requirements, own, say)
        _publish(partial, folder)
        took = time.monotonic() - began
        say(f"installed {', '.join(names)} in {took:.0f} s" if names else f"the image has all of {requirements.name} already")
    except Exception:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    except BaseException:  # a notice: removing thousands of files over a network may take longer than it leaves
        with contextlib.suppress(OSError):
            os.utime(partial, (0, 0))  # nobody's any more: the next one to install this removes it
        raise
    shutil.rmtree(partial, ignore_errors=True)


def _missing(requirements: Path, partial: Path, own: Mapping[str, str], say: Say) -> list[dict[str, Any]]:
    """What pip would add to the image, as its report has it; it replaces nothing."""
    fixed, report = partial / "constraints.txt", partial / "report.json"
    fixed.write_text("".join(f"{name}=={version}\n" for name, version in own.items()))
    flags = ["--dry-run", "--report", str(report), "--requirement", requirements.name, "--constraint", str(fixed)]
    run(["install", *flags], requirements, own, say)
    found: list[dict[str, Any]] = json.loads(report.read_text())["install"]
    for each in found:
        name = _plain(each["metadata"]["name"])
        if name in own:
            raise PipError(
                f"{requirements.name} would replace the image's {name} {own[name]}, which the platform is tested with. Leave "
                f"{name} out of it, or bring an image of your own (--image)"
            )
    return found


def line(item: Mapping[str, Any]) -> str:
    """One of the report's packages as a requirement: just this file, and not another of that version."""
    place, name = item["download_info"], item["metadata"]["name"]
    url, below = place["url"], f"subdirectory={place['subdirectory']}" if place.get("subdirectory") else ""
    if "vcs_info" in place:
        return f"{name} @ {place['vcs_info']['vcs']}+{url}@{place['vcs_info']['commit_id']}" + (f"#{below}" if below else "")
    sha256 = place.get("archive_info", {}).get("hashes", {}).get("sha256")
    fragment = "&".join(filter(None, [f"sha256={sha256}" if sha256 else "", below]))
    return f"{name} @ {url}" + (f"#{fragment}" if fragment else "")


def _publish(partial: Path, folder: Path) -> None:
    new = partial / "new"
    new.mkdir(exist_ok=True)
    os.sync()  # the name must not outlive a machine that its content does not
    try:
        new.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
        # another worker took this one for dead, and was faster: the same content is there


def _clear(folder: Path) -> None:
    """What workers left that were killed while they installed."""
    for each in folder.parent.glob(f"{folder.name}{_PARTIAL}*"):
        if time.time() - each.stat().st_mtime > _ABANDONED_SECONDS:
            shutil.rmtree(each, ignore_errors=True)


def _cure(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return "Run as user 1000, as the trainer image does: the folder is that user's"
    return "Free space on the output volume (`ebb data rm`)"


def _settings(environment: Mapping[str, str]) -> str:
    """pip's own variables in a few digits: with others it may not fail. They may hold passwords."""
    given = sorted((name, value) for name, value in environment.items() if name.startswith("PIP_"))
    return hashlib.sha256(json.dumps(given).encode()).hexdigest()[:_FEW_DIGITS]


def _plain(name: str) -> str:
    """A package's name as pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _add_folder(digest: Any, folder: Path) -> None:
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())


def _me(environment: Mapping[str, str]) -> str:
    if environment.get(ENV_JOB):
        return f"worker {environment.get(ENV_WORKER_INDEX, '?')} of {environment[ENV_JOB]}"
    return f"process {os.getpid()} on {platform.node()}"
