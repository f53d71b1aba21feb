"""`ebb ssh`: OpenSSH, VS Code and scp in a worker, through the API server."""

import asyncio
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from ebb.cli import terminal
from ebb.cli.exits import Exit
from ebb.cli.options import Format, JobName, Namespace, Output, call, print_json, run, session_of
from ebb.client.errors import BadRequest
from ebb.client.files.workers import running_worker
from ebb.client.platform.connection import Ebb, find_way
from ebb.client.ssh import hosts
from ebb.client.ssh.authority import NO_OPENSSH, prepare
from ebb.client.ssh.carrier import carry
from ebb.client.ssh.hosts import Host


@dataclass(frozen=True, kw_only=True)
class SshHost:
    """A worker as a host of OpenSSH. `file`: where the entry stands, null where it stands nowhere."""

    host: str
    config: str
    file: str | None


def ssh(
    ctx: typer.Context,
    job: JobName,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND", help="Default: a shell. Runs in the worker's own shell.")
    ] = None,
    *,
    worker: Annotated[int | None, typer.Option(help="Default: the first that runs.")] = None,
    install: Annotated[bool, typer.Option("--install", help="Add the host to ~/.ssh/config: for VS Code and scp.")] = False,
    config: Annotated[bool, typer.Option("--config", help="Print those lines, and change nothing.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take the host out again.")] = False,
    stdio: Annotated[bool, typer.Option("--stdio", hidden=True)] = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """SSH into a worker, for VS Code and scp: ebb ssh digits

    No port is opened: who may use `ebb exec` may use this. With --install the host is called ebb-JOB: choose it in VS Code
    (Remote-SSH), or use it as in `scp file ebb-digits:` and `ssh -L 8888:localhost:8888 ebb-digits`.
    """
    chosen = [name for name, given in (("--install", install), ("--config", config), ("--remove", remove)) if given]
    if len(chosen) > 1 or (chosen and command):
        raise BadRequest(f"{chosen[0]} goes with no {chosen[1] if len(chosen) > 1 else 'command'}: choose one of them.")
    if output is Output.JSON and not chosen:
        raise BadRequest("output json goes with --install, --config and --remove: `ebb exec JOB -o json -- COMMAND` runs one.")
    if stdio:
        _carry(ctx, namespace, job, worker)
        return
    host = _host(ctx, namespace, job, worker)
    if chosen:
        _configure(host, chosen[0], output)
        return
    _become(ctx, namespace, host, command or [])


def _carry(ctx: typer.Context, namespace: str | None, job: str, worker: int | None) -> None:
    """OpenSSH's ProxyCommand. Its Ctrl-C is OpenSSH's to tell."""

    async def write(channel: int, data: bytes) -> None:
        await asyncio.to_thread(terminal.write, channel, data)

    try:
        call(ctx, namespace, lambda ebb: carry(ebb, job, worker, terminal.keys(sys.stdin.fileno()), write))
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    except BrokenPipeError:  # OpenSSH has gone away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains at its end
        raise typer.Exit(Exit.FAILED) from None


def _host(ctx: typer.Context, namespace: str | None, job: str, worker: int | None) -> Host:
    """The platform is named as it is meant now: another may be the current one when an entry is used."""
    session = session_of(ctx)
    way = find_way(session.kubeconfig, session.context, session.platform)
    words = [sys.executable, "-P", "-m", "ebb.cli"]
    if way.kubeconfig and not way.platform:
        paths = (Path(each).expanduser().absolute() for each in way.kubeconfig.split(os.pathsep))
        words += ["--kubeconfig", os.pathsep.join(map(str, paths))]
    words += ["--context", way.context] if way.context else []
    words += ["--platform", way.platform] if way.platform else []
    words += ["ssh", "--stdio", job]
    words += ["--worker", str(worker)] if worker is not None else []
    words += ["--namespace", namespace] if namespace else []
    return Host(job=job, worker=worker, command=tuple(words))


def _configure(host: Host, chosen: str, output: Output) -> None:
    if chosen != "--config":
        _find("ssh")
    file: str | None = None
    if chosen == "--remove":
        told = f"{host.name} is no longer a host of OpenSSH." if hosts.remove(host) else f"{host.name} was no host of OpenSSH."
    elif chosen == "--install":
        run(prepare())
        is_new, file = hosts.install(host), str(hosts.config())
        told = f"{host.name} is a host now: `ssh {host.name}`, or choose it in VS Code (Remote-SSH: Connect to Host)."
        if is_new:
            told += f"\nThe first line of ~/.ssh/config now includes {file}; nothing else there is changed."
    else:
        run(prepare())
        told = host.entry.rstrip()
    if output is Output.JSON:
        print_json(asdict(SshHost(host=host.name, config=host.entry, file=file)))
    else:
        typer.echo(told)


def _become(ctx: typer.Context, namespace: str | None, host: Host, command: list[str]) -> None:
    """OpenSSH's client in place of this process, when a worker runs: what it says of one that does not is no help."""
    program = _find("ssh")

    async def look(ebb: Ebb) -> None:
        await asyncio.gather(running_worker(ebb, host.job, host.worker), prepare())

    call(ctx, namespace, look)
    os.execv(program, ["ssh", *host.options, host.name, *(["--", *command] if command else [])])  # noqa: S606 - no shell


def _find(name: str) -> str:
    """Raises BadRequest where OpenSSH is not there."""
    found = shutil.which(name)
    if found is None:
        raise BadRequest(NO_OPENSSH)
    return found
