"""Install what a requirements.txt asks for beyond the image: once for all workers and all jobs with the same one.

    folder = ensure(Path("requirements.txt"), Path("/mnt/output/.ebb/packages"), os.environ, say)      # for PYTHONPATH

One folder for each content: the file, what it refers to, Python and torch. It appears whole or not at all (a temporary one,
renamed), made by one worker under a Lease, and is never changed. The image's own packages stay as they are, torch above all: pip
may add to them and replace none. pip is asked first what is missing, and then told to put just that into the folder, because
`pip install --target` alone would put a second torch there.

In this order: the folder; one run of pip; what a requirements.txt says beyond the packages it names; the lease. pip may be
interrupted at any moment by a signal (reclaim.py), and ends with it. The lease is a file on a shared disk: its holder counts up
in it, and the others go by their own clocks, so machines need not agree on the time. A holder that is killed stops counting, and
after SILENT_SECONDS the next worker takes over. Two may then believe that they hold it (one was only slow), so the work under it
must be harmless to do twice. This module knows nothing of archives: code.py does.
"""

import argparse
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
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ebb.elastic.checkpoint.files import Disk, look, write_whole
from ebb.elastic.contract import ENV_JOB, ENV_WORKER_INDEX

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
            f"{requirements.name} cannot be installed into {root}: {error.strerror or error}. {_fix_for(error)}, or put the "
            "packages into an image of your own (--image)"
        ) from error


def key(requirements: Path) -> str:
    """The name of the folder: the same for the same content, on the same Python, with the same torch."""
    text = requirements.read_text(encoding="utf-8", errors="replace")
    digest = hashlib.sha256()
    for part in (text, platform.python_version(), platform.machine(), version_of("torch")):
        digest.update(part.encode() + b"\0")
    if refers_to_files(requirements):
        _add_folder(digest, requirements.parent)  # other files of the code say what is installed
    return digest.hexdigest()[:_DIGITS]


def constraints() -> dict[str, str]:
    """Every package that the image has, with its version: what comes first on the path counts. Tools that install are not of it:
    many a machine has two of them, and a program needs none."""
    found: dict[str, str] = {}
    for each in importlib.metadata.distributions():
        name = each.metadata["Name"]
        if name and _VERSION.fullmatch(each.version or ""):
            found.setdefault(_normalized_name(name), each.version)
    return {name: version for name, version in found.items() if name not in _TOOLS}


def version_of(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _ensure(requirements: Path, folder: Path, environment: Mapping[str, str], say: Say) -> Path:
    failure = folder.with_name(f"{folder.name}-{_pip_settings_digest(environment)}{_FAILED}")
    disk = Disk()

    def done() -> bool:
        """Also where another worker has failed at it, while this one waited: it would fail again."""
        return folder.name in look(disk, folder.parent) or (lease.waited and failure.exists())

    lease = Lease(
        path=folder.with_name(folder.name + _LOCK), holder=_holder_name(environment), say=say, doing="installs requirements.txt"
    )
    with lease.take(done) as mine:
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
            listed.write_text("".join(f"{each}\n" for each in [*index_options(requirements), *map(requirement_line, missing)]))
            run_pip(
                ["install", "--no-deps", "--target", str(partial / "new"), "--requirement", str(listed)], requirements, own, say
            )
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
    """The packages that pip would add to the image, as its report has it; it replaces nothing."""
    fixed, report = partial / "constraints.txt", partial / "report.json"
    fixed.write_text("".join(f"{name}=={version}\n" for name, version in own.items()))
    flags = ["--dry-run", "--report", str(report), "--requirement", requirements.name, "--constraint", str(fixed)]
    run_pip(["install", *flags], requirements, own, say)
    found: list[dict[str, Any]] = json.loads(report.read_text())["install"]
    for each in found:
        name = _normalized_name(each["metadata"]["name"])
        if name in own:
            raise PipError(
                f"{requirements.name} would replace the image's {name} {own[name]}, which the platform is tested with. Leave "
                f"{name} out of it, or bring an image of your own (--image)"
            )
    return found


def requirement_line(item: Mapping[str, Any]) -> str:
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
    """Remove the partial folders of workers that were killed while they installed."""
    for each in folder.parent.glob(f"{folder.name}{_PARTIAL}*"):
        if time.time() - each.stat().st_mtime > _ABANDONED_SECONDS:
            shutil.rmtree(each, ignore_errors=True)


def _fix_for(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return "Run as user 1000, as the trainer image does: the folder is that user's"
    return "Free space on the output volume (`ebb data rm`)"


def _pip_settings_digest(environment: Mapping[str, str]) -> str:
    """pip's own variables in a few digits: with others it may not fail. They may hold passwords."""
    given = sorted((name, value) for name, value in environment.items() if name.startswith("PIP_"))
    return hashlib.sha256(json.dumps(given).encode()).hexdigest()[:_FEW_DIGITS]


def _normalized_name(name: str) -> str:
    """A package's name as pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _add_folder(digest: Any, folder: Path) -> None:
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())


def _holder_name(environment: Mapping[str, str]) -> str:
    if environment.get(ENV_JOB):
        return f"worker {environment.get(ENV_WORKER_INDEX, '?')} of {environment[ENV_JOB]}"
    return f"process {os.getpid()} on {platform.node()}"


_PIP_NOTE_SECONDS = 5.0
_LAST_LINES = 12  # git's own words come before ten of pip's
_LINE_LENGTH = 300  # of a line: pip lists every version that there ever was
# -P: a file of the user's code that is called as one of Python's modules must not be imported by pip.
_PIP = (sys.executable, "-P", "-m", "pip", "--no-input", "--disable-pip-version-check")
_PROGRESS = re.compile(r"^\s*(Collecting|Downloading|Building|Installing|Cloning|Preparing|Using cached|Processing)\b")
_NO_INDEX = re.compile(
    r"Temporary failure in name resolution|Failed to establish a new connection|Network is unreachable|Name or service not known"
    r"|timed out|Connection refused|No route to host",
)
# What an index or git says to somebody without a name and a password, or with wrong ones.
_NOT_ALLOWED = re.compile(
    r"could not read (Username|Password)|error:? 401\b|\b401 (Client )?Error|Authentication failed",
    re.IGNORECASE,
)


class PipError(Exception):
    """pip failed; the message ends with its own words and the fix."""


def run_pip(arguments: list[str], requirements: Path, own: Mapping[str, str], say: Callable[[str], None]) -> None:
    """In the folder of the requirements. `own` are the image's packages. Raises PipError."""
    process = subprocess.Popen(
        [*_PIP, *arguments, "--progress-bar=off", "--no-color"],
        cwd=requirements.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # with all that it starts, it gets no signal of a terminal's, and can be ended as a whole
    )
    try:
        last = _follow_pip(process, say)
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode != 0:
        raise PipError(_failure_message(requirements, process.returncode, last, own))


def _follow_pip(process: "subprocess.Popen[str]", say: Callable[[str], None]) -> list[str]:
    """The last lines; while it runs, where it is, every few seconds."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_read_output, args=(process, lines), name="pip", daemon=True).start()
    last: deque[str] = deque(maxlen=_LAST_LINES)
    now, began = "pip is at work", time.monotonic()
    told = began
    while True:
        with contextlib.suppress(queue.Empty):
            line = lines.get(timeout=0.2)  # short: a signal is heard between two lines of Python
            if line is None:
                process.wait()
                return list(last)
            last.append(line[:_LINE_LENGTH])
            if _PROGRESS.match(line):
                now = line.strip()[:_LINE_LENGTH]
        if time.monotonic() - told >= _PIP_NOTE_SECONDS:
            told = time.monotonic()
            say(f"{now} ({told - began:.0f} s)")


def _read_output(process: "subprocess.Popen[str]", lines: "queue.SimpleQueue[str | None]") -> None:
    assert process.stdout is not None
    with process.stdout as output:
        for line in output:
            if line.strip():
                lines.put(line.rstrip())
    lines.put(None)


def _failure_message(requirements: Path, code: int, last: list[str], own: Mapping[str, str]) -> str:
    said = "\n".join(f"  {line}" for line in last)
    fix = _likely_fix(requirements, said, own)
    return f"{requirements.name} could not be installed; pip ended with {code} after:\n{said}\n{fix}"


def _likely_fix(requirements: Path, said: str, own: Mapping[str, str]) -> str:
    """The most likely one."""
    if "No module named pip" in said:
        return "The image has no pip: take one that has, or put the packages into an image of your own (--image)."
    if "(constraint)" in said or "conflicting dependencies" in said:
        torch = f" (torch {own['torch']} among them)" if "torch" in own else ""
        return (
            f"The image's own packages{torch} stay as they are: loosen what {requirements.name} asks for, leave the package out, "
            "or bring an image of your own (--image)."
        )
    if _NOT_ALLOWED.search(said):
        return (
            f"A server wants a name and a password. Those in a URL of {requirements.name} are not enough: pip leaves them out of "
            "its list of what to install. Name an index that has the package with --env PIP_INDEX_URL=https://NAME:TOKEN@..., or "
            "put a wheel of it into the code's folder (`pip wheel`) and its path in place of the URL."
        )
    if _NO_INDEX.search(said):
        return (
            "Pods reach no package index: name one that they reach with --env PIP_INDEX_URL=..., or put wheels into the code's "
            f"folder and `--no-index --find-links wheels` into {requirements.name}."
        )
    if "No space left" in said:
        return "Free space on the output volume (`ebb data rm`), or put the packages into an image of your own (--image)."
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"Mend {requirements.name}: names and versions must be there for Python {python} on this machine's kind of processor."


_COMMENT = re.compile(r"(^|\s)#.*")
_ARCHIVES = r"whl|zip|tar|tgz|tbz|txz|tlz|tar\.\w+"
# pip takes for a place what has a slash, or the name of an archive; a name can have neither.
_PLACE = re.compile(rf"\.|(?!\S*://)(\S*/|\S+\.({_ARCHIVES})(?![\w.]))|.*\bfile:")


def index_options(path: Path) -> list[str]:
    """In the order of the file and those that it includes, with folders as seen from anywhere."""
    return [option for file, line in _requirement_lines(path, set()) for option in _options_of(file, line)]


def refers_to_files(path: Path) -> bool:
    return any(_names_a_file(line) for _, line in _requirement_lines(path, set()))


def _options_of(file: Path, line: str) -> list[str]:
    given = _parse_line(line)
    found = ["--no-index"] if given.no_index else []
    found += [f"--index-url {shlex.quote(value)}" for value in given.index_url]
    found += [f"--extra-index-url {shlex.quote(value)}" for value in given.extra_index_url]
    found += [f"--trusted-host {shlex.quote(value)}" for value in given.trusted_host]
    return found + [f"--find-links {shlex.quote(_from_anywhere(file, value))}" for value in given.find_links]


def _from_anywhere(file: Path, value: str) -> str:
    """pip's own rule: relative to the file that says it where that is there, else as it stands."""
    place = file.parent / value
    return str(place.resolve()) if "://" not in value and place.exists() else value


def _names_a_file(line: str) -> bool:
    if not line.startswith("-"):
        return _PLACE.match(line) is not None
    given = _parse_line(line)
    links = any(not re.match(r"https?://", value) for value in given.find_links)
    return links or bool(given.requirement or given.constraint or given.editable)


def _requirement_lines(path: Path, seen: set[Path]) -> Iterator[tuple[Path, str]]:
    """Without comments, with those that go on in the next one joined; those of included files where they are included."""
    if path in seen or not path.is_file():
        return
    seen.add(path)
    for line in _joined_lines(path.read_text(encoding="utf-8-sig", errors="replace")):
        yield path, line
        if line.startswith("-"):
            given = _parse_line(line)
            for name in [*given.requirement, *given.constraint]:
                yield from _requirement_lines((path.parent / name).resolve(), seen)


def _joined_lines(text: str) -> Iterator[str]:
    whole = ""
    for line in text.splitlines():
        if line.endswith("\\") and not _COMMENT.match(line):
            whole += line[:-1]
            continue
        if found := _COMMENT.sub("", whole + line).strip():
            yield found
        whole = ""
    if found := _COMMENT.sub("", whole).strip():
        yield found


def _parse_line(line: str) -> argparse.Namespace:
    """Read leniently: pip refuses a file that it does not understand."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, usage="")
    parser.add_argument("--no-index", action="store_true")
    for names in (
        ("--index-url", "--pypi-url", "-i"),
        ("--extra-index-url",),
        ("--trusted-host",),
        ("--find-links", "-f"),
        ("--requirement", "-r"),
        ("--constraint", "-c"),
        ("--editable", "-e"),
    ):
        parser.add_argument(*names, action="append", default=[])
    try:
        return parser.parse_known_args(shlex.split(line))[0]
    except (argparse.ArgumentError, ValueError):
        return parser.parse_args([])


RENEW_SECONDS = 5.0
SILENT_SECONDS = 60.0  # twelve counts that did not come
_LEASE_LOOK_SECONDS = 1.0
_LEASE_NOTE_SECONDS = 10.0
_END_SECONDS = 2.0  # for a count that a disk holds up: a notice leaves 30 s for all there is to do


@dataclass(kw_only=True)
class Lease:
    """`waited` tells afterwards whether somebody else was at it."""

    path: Path
    holder: str
    say: Callable[[str], None]
    doing: str = "does it"
    renew_seconds: float = RENEW_SECONDS
    silent_seconds: float = SILENT_SECONDS
    look_seconds: float = _LEASE_LOOK_SECONDS
    waited: bool = False
    _token: str = field(default_factory=lambda: secrets.token_hex(8))

    @contextlib.contextmanager
    def take(self, done: Callable[[], bool]) -> Iterator[bool]:
        """True where it is ours to do; False once `done()`. Raises OSError where the disk cannot be written."""
        if not self._wait(done):
            yield False
            return
        ended = threading.Event()
        renewer = threading.Thread(target=self._renew, args=(ended,), name="lease", daemon=True)
        renewer.start()
        try:
            yield True
        finally:
            ended.set()
            renewer.join(_END_SECONDS)
            with contextlib.suppress(OSError):  # then it counts no more, and is taken over
                if self._is_ours():
                    self.path.unlink(missing_ok=True)

    def _wait(self, done: Callable[[], bool]) -> bool:
        seen: str | None = None
        since = began = time.monotonic()
        told = 0.0
        while not done():
            if self._create():
                return True
            self.waited = True
            found, now = self._seen(), time.monotonic()
            if found != seen:
                seen, since = found, now
            elif now - since >= self.silent_seconds:
                self.say(f"{_holder_in(found)} has been silent for {now - since:.0f} s: taking over")
                if self._seen() == found:
                    self.path.unlink(missing_ok=True)
                continue
            if now - told >= _LEASE_NOTE_SECONDS:
                self.say(f"{_holder_in(found)} {self.doing}; waiting for it since {now - began:.0f} s")
                told = now
            time.sleep(self.look_seconds)  # network file systems tell of no changes by other machines
        return False

    def _create(self) -> bool:
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "w") as file:
            file.write(self._content(0))
        return True

    def _renew(self, ended: threading.Event) -> None:
        """In place: a client of a network file system asks the server again for a file that it opens, but not for a name."""
        count = 0
        while not ended.wait(self.renew_seconds):
            count += 1
            with contextlib.suppress(OSError):  # a disk that hangs for a moment; the next count may come through
                if not self._is_ours():
                    return
                with self.path.open("r+") as file:
                    file.write(self._content(count))
                    file.flush()
                    os.fsync(file.fileno())

    def _content(self, count: int) -> str:
        """Of one length, whatever the count: it is written over."""
        return f"{self._token} {count:012} {self.holder}\n"

    def _is_ours(self) -> bool:
        """Raises OSError where that cannot be said."""
        return self._read().startswith(self._token)

    def _seen(self) -> str:
        """As who waits sees it: what it cannot read says nothing."""
        try:
            return self._read()
        except OSError:
            return ""

    def _read(self) -> str:
        try:
            return self.path.read_text(errors="replace")
        except FileNotFoundError:
            return ""


def _holder_in(content: str) -> str:
    words = content.strip().split(" ", 2)
    return words[2] if len(words) == 3 else "another worker"
