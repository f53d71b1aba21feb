"""Install what a requirements.txt asks for beyond the image: once for all workers and all jobs with the same one.

    folder = ensure(Path("requirements.txt"), Path("/mnt/output/.ebb/packages"), os.environ, say)      # for PYTHONPATH

One folder for each content: the file, what it refers to, Python and torch. It appears whole or not at all (a temporary one,
renamed), made by one worker under a Lease, and is never changed. uv does the work. The image's own packages stay as they are,
torch above all: uv may add to them and replace none. It sees them as installed in the new folder (their metadata is copied there
and removed afterwards), because `--target` alone would put a second torch into it. A signal may interrupt it at any moment
(reclaim.py). This module knows nothing of archives: code.py does.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.metadata
import json
import os
import platform
import queue
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from ebb.elastic.checkpoint.files import Disk, look, write_whole
from ebb.elastic.contract import ENV_JOB, ENV_WHEELS, ENV_WORKER_INDEX
from ebb.elastic.launch.lease import Lease

_FAILED, _LOCK, _PARTIAL = ".failed", ".lock", ".partial-"
_ABANDONED_SECONDS = 3600.0
_DIGITS, _FEW_DIGITS = 16, 8
_NOTE_SECONDS = 5.0
_OURS = "the image\n"  # as the installer of a copied package
_LAST_LINES = 16  # of uv's explanation, which may end with git's own words
_LINE_LENGTH = 300
_TOOLS = ("pip", "setuptools", "uv", "wheel")  # a program needs none of them, and many a machine has two of one
_VERSION = re.compile(r"[\d.!]+((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[\w.]+)?")  # a constraint may have no other
# A line that names a file of the code: an option with a place that is not on the web, or a path or archive as a requirement.
_OPTION_WITH_FILE = re.compile(r"(-[rcef]|--(requirement|constraint|editable|find-links))[\s=]*(?!\s|=|https?://)|.*--find-links")
_ARCHIVES = r"whl|zip|tar|tgz|tbz|txz|tlz|tar\.\w+"
_PLACE = re.compile(rf"\.|(?!\S*://)(\S*/|\S+\.({_ARCHIVES})(?![\w.]))|.*\bfile:")
_UNREACHABLE = re.compile(
    r"dns error|tcp connect error|Network is unreachable|timed out|Connection refused|Could not resolve host"
)
# Said by an index or by git to somebody without a name and a password, or with wrong ones.
_NOT_ALLOWED = re.compile(r"could not read (Username|Password)|\b401\b|Authentication failed", re.IGNORECASE)

Say = Callable[[str], None]


class PackagesError(Exception):
    """They could not be installed; the message says why and names the fix."""


class _InstallError(Exception):
    """uv failed; it would fail for every other worker as well."""


def ensure(requirements: Path, root: Path, environment: Mapping[str, str], say: Say) -> Path:
    """The folder, made if it is not there. Raises PackagesError."""
    folder = root / key(requirements)
    try:
        root.mkdir(parents=True, exist_ok=True)
        return _ensure(requirements, folder, environment, say)
    except OSError as error:
        fix = "Free space on the output volume (`ebb data rm`)"
        if error.errno in (errno.EACCES, errno.EPERM):
            fix = "Run as user 1000, as the trainer image does: the folder is that user's"
        raise PackagesError(
            f"{requirements.name} cannot be installed into {root}: {error.strerror or error}. {fix}, or put the "
            "packages into an image of your own (--image)"
        ) from error


def key(requirements: Path) -> str:
    """The name of the folder: the same for the same content, on the same Python, with the same torch.

    dill, and so Hugging Face's datasets, knows by "site-packages" in a path that a module can be imported: others are pickled
    with the functions that use them, at which pyarrow fails.
    """
    text = requirements.read_text(encoding="utf-8-sig", errors="replace")
    digest = hashlib.sha256()
    for part in (text, platform.python_version(), platform.machine(), version_of("torch")):
        digest.update(part.encode() + b"\0")
    if refers_to_files(text):  # then other files of the code say what is installed
        for path in sorted(each for each in requirements.parent.rglob("*") if each.is_file()):
            digest.update(str(path.relative_to(requirements.parent)).encode() + b"\0" + path.read_bytes())
    return f"{digest.hexdigest()[:_DIGITS]}-site-packages"


def refers_to_files(text: str) -> bool:
    """True if a line includes another file, or installs one. A line in doubt counts: an installation too many is harmless."""
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.replace("\\\n", " ").splitlines())
    return any((_OPTION_WITH_FILE if line.startswith("-") else _PLACE).match(line) for line in lines)


def version_of(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _ensure(requirements: Path, folder: Path, environment: Mapping[str, str], say: Say) -> Path:
    # With another index it may not fail: the settings' digest is part of the name, since they may hold passwords.
    given = sorted((name, value) for name, value in environment.items() if name.startswith(("PIP_", "UV_", ENV_WHEELS)))
    settings = hashlib.sha256(json.dumps(given).encode()).hexdigest()[:_FEW_DIGITS]
    failure = folder.with_name(f"{folder.name}-{settings}{_FAILED}")
    disk = Disk()

    def done() -> bool:
        """Also where another worker has failed at it, while this one waited: it would fail again."""
        return folder.name in look(disk, folder.parent) or (lease.waited and failure.exists())

    holder = f"process {os.getpid()} on {platform.node()}"
    if environment.get(ENV_JOB):
        holder = f"worker {environment.get(ENV_WORKER_INDEX, '?')} of {environment[ENV_JOB]}"
    lease = Lease(path=folder.with_name(folder.name + _LOCK), holder=holder, say=say, doing="installs requirements.txt")
    with lease.take(done) as mine:
        if mine:
            failure.unlink(missing_ok=True)
            try:
                _install(requirements, folder, environment, say)
            except _InstallError as error:
                write_whole(disk, failure, str(error).encode())
                raise PackagesError(str(error)) from error
        elif not folder.is_dir():
            raise PackagesError(f"as another worker found: {failure.read_text()}")
    return folder


def _install(requirements: Path, folder: Path, environment: Mapping[str, str], say: Say) -> None:
    """Into a temporary folder beside it, and renamed when all is on the disk. Raises _InstallError."""
    for each in folder.parent.glob(f"{folder.name}{_PARTIAL}*"):  # of workers that were killed while they installed
        if time.time() - each.stat().st_mtime > _ABANDONED_SECONDS:
            shutil.rmtree(each, ignore_errors=True)
    began = time.monotonic()
    partial = folder.with_name(f"{folder.name}{_PARTIAL}{secrets.token_hex(4)}")
    new = partial / "new"
    new.mkdir(parents=True)
    try:
        say(f"installing {requirements.name} for this job and all later ones with the same")
        own = _copy_metadata(new)
        fixed = partial / "constraints.txt"
        fixed.write_text("".join(f"{name}=={version}\n" for name, version in own.items()))
        run_uv(["--target", str(new), "--constraint", str(fixed)], requirements, environment, say)
        _remove_metadata(new, own, requirements)
        names = sorted(f"{each.metadata['Name']} {each.version}" for each in importlib.metadata.distributions(path=[str(new)]))
        os.sync()  # the name must not outlive a machine that its content does not
        try:
            new.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
            # another worker took this one for dead, and was faster: the same content is there
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


def _copy_metadata(new: Path) -> dict[str, str]:
    """Make the image's packages known to uv, and return the versions of those that must stay."""
    own: dict[str, str] = {}
    seen = set[str]()
    for each in importlib.metadata.distributions():
        name, text = re.sub(r"[-_.]+", "_", each.metadata["Name"] or "").lower(), each.read_text("METADATA")
        if not text or name in seen or not _VERSION.fullmatch(each.version or ""):
            continue
        seen.add(name)  # what comes first on the path counts
        info = new / f"{name}-{each.version}.dist-info"
        info.mkdir()
        for file, content in (("METADATA", text), ("RECORD", ""), ("INSTALLER", _OURS)):
            (info / file).write_text(content)
        if name not in _TOOLS:
            own[name.replace("_", "-")] = each.version
    return own


def _remove_metadata(new: Path, own: Mapping[str, str], requirements: Path) -> None:
    """Take out what _copy_metadata put in. Raises _InstallError where uv has replaced one of them."""
    for name, version in own.items():
        info = new / f"{name.replace('-', '_')}-{version}.dist-info"
        if not info.is_dir() or (info / "INSTALLER").read_text() != _OURS:
            raise _InstallError(
                f"{requirements.name} would replace the image's {name} {version}, which the platform is tested with. Leave "
                f"{name} out of it, or bring an image of your own (--image)"
            )
    for file in new.glob("*.dist-info/INSTALLER"):
        if file.read_text() == _OURS:
            shutil.rmtree(file.parent)
    (new / ".lock").unlink(missing_ok=True)


def run_uv(arguments: list[str], requirements: Path, environment: Mapping[str, str], say: Say) -> None:
    """Install in the folder of the requirements, with its notes on the way. Raises _InstallError."""
    # A file of the user's code that is called as one of Python's modules must not be imported by Python. -P is there since 3.11;
    # -I also leaves out $PYTHONPATH, where our own image has uv.
    safe = "-P" if sys.version_info >= (3, 11) else "-I"
    command = [sys.executable, safe, "-m", "uv", "--no-config", "--no-cache", "--no-progress", "--color=never", "pip", "install"]
    flags = [f"--python={sys.executable}", f"--requirement={requirements.name}"]
    flags += ["--no-editable", "--link-mode=copy", "--compile-bytecode"]  # bytecode as by pip: workers write none
    process = subprocess.Popen(
        [*command, *flags, *pip_settings(environment), *arguments],
        cwd=requirements.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # with all that it starts, it gets no signal of a terminal's, and can be ended as a whole
    )
    try:
        last = _follow(process, say)
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode != 0:
        said = "\n".join(f"  {line}" for line in last)
        failed = f"{requirements.name} could not be installed; uv ended with {process.returncode} after:"
        raise _InstallError(f"{failed}\n{said}\n{_likely_fix(requirements, said)}")


def pip_settings(environment: Mapping[str, str]) -> list[str]:
    """pip's own variables as uv's options: jobs name their index with PIP_INDEX_URL. uv reads its own variables itself."""
    options = {
        "PIP_INDEX_URL": "--default-index",
        "PIP_EXTRA_INDEX_URL": "--index",
        "PIP_FIND_LINKS": "--find-links",
        "PIP_TRUSTED_HOST": "--allow-insecure-host",
    }
    found = ["--index-strategy=unsafe-best-match"]  # pip's: the best version of all indexes, and not only of the first
    for name, option in options.items():
        values = environment.get(name, "").split()
        if option == "--find-links":  # uv refuses a folder that is not there, which pip only mentions
            values = [value for value in values if "://" in value or Path(value).is_dir()]
        found += [f"{option}={value}" for value in values]
    if wheels := environment.get(ENV_WHEELS):
        return [*found, "--no-index", f"--find-links={wheels}"]
    return found + (["--no-index"] if environment.get("PIP_NO_INDEX", "").lower() in ("1", "true", "yes", "on") else [])


def _follow(process: subprocess.Popen[str], say: Say) -> list[str]:
    """Return the last lines; while it runs, say every few seconds where it is."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                if line.strip():
                    lines.put(line.rstrip()[:_LINE_LENGTH])
        lines.put(None)

    threading.Thread(target=read, name="uv", daemon=True).start()
    last: deque[str] = deque(maxlen=_LAST_LINES)
    now, began = "uv is at work", time.monotonic()
    noted = began
    while True:
        with contextlib.suppress(queue.Empty):
            line = lines.get(timeout=0.2)  # short: a signal is heard between two lines of Python
            if line is None:
                process.wait()
                return list(last)
            last.append(line)
            now = line.strip()
        if time.monotonic() - noted >= _NOTE_SECONDS:
            noted = time.monotonic()
            say(f"{now} ({noted - began:.0f} s)")


def _likely_fix(requirements: Path, said: str) -> str:
    if "No module named uv" in said:
        return "The image has no uv: install it there, or put the packages into an image of your own (--image)."
    if _NOT_ALLOWED.search(said):
        return (
            f"A server wants a name and a password: put them into the URL in {requirements.name}, name an index that has the "
            "package with --env PIP_INDEX_URL=https://NAME:TOKEN@..., or put a wheel of it into the code's folder."
        )
    if _UNREACHABLE.search(said):
        return (
            "Pods reach no package index: name one that they reach with --env PIP_INDEX_URL=..., or put wheels into the code's "
            f"folder and `--no-index --find-links wheels` into {requirements.name}."
        )
    if "unsatisfiable" in said and "was not found in" not in said:
        torch = f" (torch {version_of('torch')} among them)" if version_of("torch") else ""
        return (
            f"The image's own packages{torch} stay as they are: loosen what {requirements.name} asks for, leave the package out, "
            "or bring an image of your own (--image)."
        )
    if "No space left" in said:
        return "Free space on the output volume (`ebb data rm`), or put the packages into an image of your own (--image)."
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        f"Correct {requirements.name}: names and versions must be there for Python {python} on this machine's kind of processor."
    )
