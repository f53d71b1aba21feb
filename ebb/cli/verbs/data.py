"""`ebb data put | ls | get | rm` and `ebb outputs`: files on the shared volumes."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ebb.cli.exits import Exit
from ebb.cli.options import Format, Namespace, Output, call, note, print_json, record
from ebb.cli.render import clock, make_console, now_local, table
from ebb.cli.terminal import progress_bar
from ebb.client.errors import BadRequest
from ebb.client.files import data as files
from ebb.client.files.data import fetch_outputs, list_outputs

T = TypeVar("T")
data = typer.Typer(help="Files on the shared volumes: ebb data put ./imagenet data/imagenet")

Place = Annotated[str, typer.Argument(metavar="PLACE", help="On a volume: as workers see it (/mnt/data/x), or data/x.")]
Recursive = Annotated[bool, typer.Option("-r", "--recursive", help="Folders and everything in them.")]
Checksum = Annotated[bool, typer.Option("--checksum", help="Compare files by content, not by size and age: slow and sure.")]


@data.command("put")
def put(
    ctx: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A file or folder of this machine.")],
    target: Annotated[str, typer.Argument(metavar="PLACE", help="Its name on a volume; with a trailing /: the folder for it.")],
    *,
    checksum: Checksum = False,
    output: Format = Output.TEXT,
) -> None:
    """Write a file or folder to a volume; repeated, only what is missing."""
    with progress_bar() as show:
        done = _moving(lambda: call(ctx, None, lambda ebb: files.put(ebb, source, target, show, checksum=checksum)))
    _tell(done, output)


@data.command("get")
def get(
    ctx: typer.Context,
    source: Place,
    target: Annotated[str, typer.Argument(metavar="FILE", help="Its name here; with a trailing /: the folder for it.")] = ".",
    *,
    checksum: Checksum = False,
    output: Format = Output.TEXT,
) -> None:
    """Fetch a file or folder from a volume; repeated, only what is missing."""
    with progress_bar() as show:
        done = _moving(lambda: call(ctx, None, lambda ebb: files.get(ebb, source, target, show, checksum=checksum)))
    _tell(done, output)


@data.command("ls")
def ls(
    ctx: typer.Context,
    place: Annotated[str | None, typer.Argument(metavar="[PLACE]", help="Default: the volumes.")] = None,
    *,
    recursive: Recursive = False,
    output: Format = Output.TEXT,
) -> None:
    """List a place; without one, the volumes and their free space."""
    _show(call(ctx, None, lambda ebb: files.ls(ebb, place, recursive=recursive)), output)


@data.command("rm")
def rm(
    ctx: typer.Context,
    place: Place,
    *,
    recursive: Recursive = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    output: Format = Output.TEXT,
) -> None:
    """Remove a file, or with -r a folder. Jobs that use it fail."""
    if recursive and not yes and sys.stdin.isatty():
        typer.confirm(f"Remove {place} and everything in it?", abort=True)
    path = call(ctx, None, lambda ebb: files.rm(ebb, place, recursive=recursive))
    print_json({"removed": path}) if output is Output.JSON else typer.echo(f"{path} is removed.")


def outputs(
    ctx: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="[get] JOB [PATH] [DIR]", help="PATH: below the job's folder.")],
    *,
    recursive: Recursive = False,
    checksum: Checksum = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Files a job has written; `ebb outputs get JOB` fetches them."""
    fetches = words[0] == "get" and len(words) > 1
    job, *rest = words[1:] if fetches else words
    if len(rest) > 1 + fetches:
        said = " ".join(rest[1 + fetches :])
        raise BadRequest(f"{said!r} is too much: use `ebb outputs JOB [PATH]` or `ebb outputs get JOB [PATH] [DIR]`.")
    path, target = (*rest, "", "")[:2]
    if not fetches:
        _show(call(ctx, namespace, lambda ebb: list_outputs(ebb, job, path, recursive=recursive)), output)
        return
    with progress_bar() as show:
        done = _moving(lambda: call(ctx, namespace, lambda ebb: fetch_outputs(ebb, job, path, target, show, checksum=checksum)))
    _tell(done, output)


def _moving(work: Callable[[], T]) -> T:
    """Ctrl-C says that nothing is lost."""
    try:
        return work()
    except KeyboardInterrupt:
        note("\nebb: stopped; what was transferred is kept, and the same command resumes from there.")
        raise typer.Exit(Exit.INTERRUPTED) from None


def _tell(done: files.Transfer, output: Output) -> None:
    if output is Output.JSON:
        print_json(record(done))
        return
    for path in done.left_out[:10]:
        note(f"skipped, as it is a link, not a regular file, or gone: {path}")
    if len(done.left_out) > 10:
        note(f"skipped likewise: {len(done.left_out) - 10} more")
    there = f" ({done.there_already} were there already)" if done.there_already else ""
    typer.echo(f"{done.source} -> {done.target}: {_count(done.files, 'file')}, {size(done.size)}{there}")


def _show(found: files.Listing, output: Output) -> None:
    if output is Output.JSON:
        print_json(_listed(found))
        return
    console = make_console()
    if found.path:
        now = now_local()
        lines = [
            (
                one.name + "/" * (one.kind == "folder"),
                size(one.size) if one.kind == "file" else one.kind,
                clock(_stamp(one.modified_ns), now),
            )
            for one in found.entries
        ]
        note(found.path)
        console.print(table(("NAME", "SIZE", "CHANGED"), lines, console.width) if lines else "Nothing is there.")
        return
    rows = [(one.name, one.path, "read-only" if one.read_only else size(one.free), size(one.total)) for one in found.volumes]
    console.print(table(("NAME", "PATH", "FREE", "OF"), rows, console.width, gives=1))


def _listed(found: files.Listing) -> dict[str, Any]:
    whole = record(found)
    return {key: whole[key] for key in (("path", "entries") if found.path else ("volumes",))}


def _stamp(modified_ns: int) -> str:
    return datetime.fromtimestamp(modified_ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + "s" * (number != 1)


def size(count: int) -> str:
    """1.5 GB; of 1000, as disks and networks are sold."""
    for limit, unit in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count} B"
