"""The `pulumi` of a shell after `source ./env`: finds the engine and the Kubernetes plugin, then becomes the real `pulumi`.

An official CLI of our version on PATH is used, else the one that devcluster/tools.py builds. An official Kubernetes plugin (in
PULUMI_HOME, in ~/.pulumi or on PATH) is used, else the stand-in: this file alone puts it on PATH and sets its opt-in. A stack
that one of the two made is refused to the other: their states differ (docs/pulumi-stand-in.md). What is set here beside that is
the default of our own state folder: a passphrase (a local stack has no secrets), no update check, no unasked downloads.
None of this is for stacks of a real cloud: those are stacks.py's.
"""

import asyncio
import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster import tools
from devcluster.commands import lives
from devcluster.pulumi import stacks
from devcluster.pulumi.stand_in import MARK, OPT_IN
from devcluster.settings import CHECKOUT, EBB_HOME, BoxError

HERE = Path(__file__).resolve().parent
PLUGIN_FOLDER = CHECKOUT / "testing" / "pulumi" / "kubernetes" / "plugin"
PLUGIN = "pulumi-resource-kubernetes"
HOST = "pulumi-language-python"
PROJECT, STACK = "ebb", "local"
PASSPHRASE = "ebb"  # noqa: S105 - of a state file on this machine that holds no secrets; Pulumi wants one
ENGINE_VERBS = frozenset(("up", "update", "preview", "pre", "refresh", "destroy", "down", "import", "watch"))


class LauncherError(BoxError):
    """Pulumi cannot be started like this; the message says what to do."""


@dataclass(frozen=True)
class Folders:
    """Folders that Pulumi writes to. `home` is PULUMI_HOME, `state` the backend's folder (None: the backend is not a folder)."""

    home: Path
    state: Path | None


def main(program: str, arguments: list[str]) -> int:
    """Become the program. Returns only on an error, which has been printed."""
    try:
        path = os.pathsep.join(_others_path(os.environ.get("PATH", "")))
        os.environ["PATH"] = path
        with contextlib.redirect_stdout(sys.stderr):  # what a build says must not get into `pulumi stack output --json`
            if program == "kubectl":
                os.execv(tools.main_ensure("kubernetes") / "kubectl", ["kubectl", *arguments])  # noqa: S606
            engine = engine_folder()
        if stacks.users_own(arguments):
            environment = {**os.environ, "PULUMI_HOME": stacks.home_of(os.environ), "PATH": own_path(os.environ, engine)}
            os.execve(engine / "pulumi", ["pulumi", *arguments], environment)  # noqa: S606
        stack = stacks.named_stack(arguments, os.environ)
        if stack and stacks.cloud_of(stack) != stacks.LOCAL:
            environment = stacks.environment_for(os.environ, own_path(os.environ, engine), stack)
            os.execve(engine / "pulumi", ["pulumi", *arguments], environment)  # noqa: S606
        environment = environment_for(os.environ, engine)
        folders = folders_of(environment)
        if folders.state is not None:
            folders.state.mkdir(parents=True, exist_ok=True)
            remove_stale_locks(folders.state)
            if ENGINE_VERBS & set(arguments):
                stack = chosen(arguments, folders)
                refuse_foreign(folders.state, stack, stand_in=OPT_IN in environment)
                arguments = named(arguments, stack)
        os.execve(engine / "pulumi", ["pulumi", *arguments], environment)  # noqa: S606
    except BoxError as error:
        print(f"error: {error}", file=sys.stderr)
    return 1


def _others_path(path: str) -> list[str]:
    """PATH without our own commands, or we would find ourselves."""
    return [folder for folder in path.split(os.pathsep) if folder and Path(folder).resolve() != HERE / "bin"]


def engine_folder() -> Path:
    """A folder with `pulumi` and its Python host side by side, as an official installation has them; made when it is missing."""
    cli, host = asyncio.run(tools.ensure_pulumi())
    if cli.parent == host and EBB_HOME not in cli.parents:
        return host  # the user's own installation, used as it is
    folder = EBB_HOME / "pulumi" / f"engine3-{cli.parent.name.rpartition('-')[2]}-{host.name.rpartition('-')[2]}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".engine-", dir=folder.parent))
        partial.chmod(0o755)
        _link(cli, partial / "pulumi")
        (partial / f"{HOST}-exec").write_text(_quiet_script((host / f"{HOST}-exec").read_text()))
        (partial / f"{HOST}-exec").chmod(0o755)
        (partial / HOST).write_text(_host_script(host / HOST))
        (partial / HOST).chmod(0o755)
        with contextlib.suppress(OSError):  # somebody else was faster
            partial.rename(folder)
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _link(source: Path, target: Path) -> None:
    """The CLI looks for its host beside its own file, so a symbolic link would not do."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)


def _quiet_script(script: str) -> str:
    """The engine ends the program of a failed update by an interrupt: without Python's traceback, which would bury the error."""
    first, _, rest = script.partition("\n")
    quiet = "signal.signal(signal.SIGINT, signal.SIG_DFL)\nsignal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])"
    return f"{first}\nimport signal\n\n{quiet}  # program/python holds it back until here\n{rest}"


def _host_script(host: Path) -> str:
    """The host checks only every 5 minutes whether its engine lives: after a kill -9 it would stay that long."""
    setpriv = shutil.which("setpriv")
    guard = f"{setpriv} --pdeathsig KILL -- " if setpriv else ""
    return f'#!/bin/sh\nexec {guard}"{host}" "$@"\n'


def environment_for(given: Mapping[str, str], engine: Path) -> dict[str, str]:
    """The environment of the real pulumi. What the user has set stays, but for the passphrase of our own state folder."""
    path = own_path(given, engine).split(os.pathsep)
    home = Path(given.get("PULUMI_HOME") or EBB_HOME / "pulumi")
    usual = Path(given.get("HOME") or "/") / ".pulumi"
    official = official_plugin([home, usual], path)
    if official is not None and official.parent.parent == usual:
        home = usual
    ours = {"PULUMI_BACKEND_URL": f"file://{EBB_HOME / 'pulumi' / 'state'}", "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE}
    if "PULUMI_BACKEND_URL" in given:
        secret = {"PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"} & set(given)
        ours = {} if secret else {"PULUMI_CONFIG_PASSPHRASE": PASSPHRASE}
    stand_in = {} if official else {OPT_IN: "1"}
    defaults = {
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_PYTHON_CMD": str(HERE / "program" / "python"),
    }
    kept = {key: value for key, value in given.items() if key != OPT_IN}
    plugin = [] if official else [str(PLUGIN_FOLDER)]
    return {**defaults, **kept, **ours, **stand_in, "PULUMI_HOME": str(home), "PATH": os.pathsep.join(plugin + path)}


def own_path(given: Mapping[str, str], engine: Path) -> str:
    """The engine and our Python first; ourselves nowhere."""
    return os.pathsep.join([str(engine), str(CHECKOUT / ".venv" / "bin"), *_others_path(given.get("PATH", ""))])


def official_plugin(homes: Sequence[Path], path: Sequence[str]) -> Path | None:
    """The official Kubernetes plugin, if one is installed that serves our SDK: the same major version, not older."""
    on_path = shutil.which(PLUGIN, path=os.pathsep.join(path))
    if on_path and Path(on_path).resolve().parent != PLUGIN_FOLDER:
        return Path(on_path)
    wanted = _version(importlib.metadata.version("pulumi-kubernetes"))
    for home in homes:
        for folder in sorted((home / "plugins").glob("resource-kubernetes-v*")):
            found = _version(folder.name.rpartition("-v")[2])
            if found and wanted and found[0] == wanted[0] and found >= wanted and (folder / PLUGIN).exists():
                return folder
    return None


def _version(text: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else ()


def folders_of(environment: Mapping[str, str]) -> Folders:
    url = environment["PULUMI_BACKEND_URL"]
    folder = Path(url.removeprefix("file://").partition("?")[0]).expanduser() if url.startswith("file://") else None
    return Folders(Path(environment["PULUMI_HOME"]), folder)


def chosen(arguments: Sequence[str], folders: Folders) -> str:
    """The stack that the command is about: --stack, else the selected one if it exists, else `local`."""
    for index, argument in enumerate(arguments):
        if argument in ("-s", "--stack") and index + 1 < len(arguments):
            return arguments[index + 1].rpartition("/")[2]
        if argument.startswith("--stack="):
            return argument.rpartition("=")[2].rpartition("/")[2]
    for file in sorted((folders.home / "workspaces").glob(f"{PROJECT}-*-workspace.json")):
        with contextlib.suppress(ValueError, OSError):
            selected = str(json.loads(file.read_text()).get("stack", "")).rpartition("/")[2]
            if selected and folders.state and _checkpoint(folders.state, selected).exists():
                return selected
    return STACK


def named(arguments: list[str], stack: str) -> list[str]:
    """The arguments with the stack's name said, so that nobody is asked for it; outside the checkout nothing is added."""
    said = any(argument in ("-s", "--stack") or argument.startswith("--stack=") for argument in arguments)
    inside = CHECKOUT in (Path.cwd(), *Path.cwd().parents)
    return arguments if said or not inside else [*arguments, "--stack", stack]


def _checkpoint(state: Path, stack: str) -> Path:
    return state / ".pulumi" / "stacks" / PROJECT / f"{stack}.json"


def refuse_foreign(state: Path, stack: str, *, stand_in: bool) -> None:
    """Raise LauncherError if the stack was made by the other plugin."""
    try:
        kept = json.loads(_checkpoint(state, stack).read_text())
    except (OSError, ValueError):
        return  # no such stack yet, or the engine will say what is wrong with it
    marked = {MARK in (one.get("outputs") or {}) for one in _managed(kept)}
    maker = "the stand-in that comes with Ebb" if stand_in is False else "the official Kubernetes plugin"
    here = "the official plugin" if stand_in is False else "the stand-in (no official plugin is installed here)"
    if (not stand_in) in marked:
        raise LauncherError(
            f"stack {stack!r} was made with {maker}, and this would run it with {here}, which keeps another state. Destroy it "
            "with the one that made it, or move it as docs/pulumi-stand-in.md says. Nothing was changed."
        )


def _managed(checkpoint: Any) -> Iterator[dict[str, Any]]:
    latest = (checkpoint.get("checkpoint") or {}).get("latest") or {}
    for one in latest.get("resources") or []:
        if one.get("custom") and not one.get("external") and str(one["type"]).startswith("kubernetes:"):
            yield one


def remove_stale_locks(state: Path) -> None:
    """A Pulumi that was killed leaves its lock behind, and the next one would ask a person to remove it. Attributes that it was
    about to write, in a file beside each of its own, may be empty: the next one would end with "EOF", and needs none."""
    for lock in (state / ".pulumi" / "locks").rglob("*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            content = json.loads(lock.read_text())
            if content["hostname"] == socket.gethostname() and not _is_pulumi(int(content["pid"])):
                lock.unlink()
                for attributes in (state / ".pulumi").rglob("*.attrs"):
                    if not attributes.stat().st_size:
                        attributes.unlink()
                print(f"removed the lock of a Pulumi that was killed (process {content['pid']})", file=sys.stderr)


def _is_pulumi(pid: int) -> bool:
    """True if the process lives and is Pulumi; where there is no /proc, any living process counts."""
    if Path("/proc/self/stat").exists():
        with contextlib.suppress(OSError):
            name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
            return name == "pulumi" and rest.split()[0] != "Z"  # a killed one whose parent has not noticed yet holds nothing
        return False
    return lives(pid)
