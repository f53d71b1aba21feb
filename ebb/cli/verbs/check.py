"""`ebb check`: platform, network, storage. `platform` is what is meant where none of them is named."""

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, TypeVar

import typer
from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from typer.core import TyperGroup

from ebb.cli.exits import Exit
from ebb.cli.options import Format, Namespace, Output, note, paragraph, print_json, record, run, session_of
from ebb.cli.pages import check_estimate, check_page, network_page, storage_page
from ebb.cli.render import make_console
from ebb.cli.terminal import confirm, is_interactive
from ebb.client.diagnostics import network as networks
from ebb.client.diagnostics import storage as volumes
from ebb.client.diagnostics.check import check as examine
from ebb.client.diagnostics.check_job import Show, estimate
from ebb.client.diagnostics.network import NetworkOptions
from ebb.client.diagnostics.storage import SAMPLE_BYTES, StorageNeed, StorageOptions
from ebb.client.diagnostics.symptoms import PROBLEM, Finding
from ebb.client.errors import BadRequest
from ebb.client.jobs.watch import status
from ebb.client.platform.connection import Ebb
from ebb.client.submission.submit import Prepared

PLATFORM = "platform"


class Adapters(StrEnum):
    """--adapters: how many fast ones of each machine are used."""

    NONE = "0"
    ONE = "1"
    ALL = "all"


class _Checks(TyperGroup):
    """`ebb check` without a word for it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else [PLATFORM, *args])


check = typer.Typer(cls=_Checks)


@check.callback()
def main() -> None:
    """Check the platform; each problem comes with its fix.

    `platform` may be left out. `network` and `storage` measure with a small job.
    """


@check.command(PLATFORM)
def check_platform(ctx: typer.Context, namespace: Namespace = None, output: Format = Output.TEXT) -> None:
    """Check the platform; each problem comes with its fix.

    From the kubeconfig over your rights, the controller, volumes, etcd, machines and quotas to the gateway.
    """
    session = session_of(ctx)
    findings = run(
        examine(
            session.kubeconfig,
            session.context,
            namespace=namespace,
            platform=session.platform,
            team=session.team,
            opener=session.connect,
        )
    )
    if output is Output.JSON:
        print_json({"findings": [record(finding) for finding in findings]})
    else:
        console = make_console()
        console.print(check_page(findings, console.width))
    if any(finding.level == PROBLEM for finding in findings):
        raise typer.Exit(Exit.FAILED)


@check.command("network")
def network(
    ctx: typer.Context,
    *,
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", help="GPUs to measure between.")] = 2,
    adapters: Annotated[
        Adapters, typer.Option("--adapters", help="EFA or RDMA adapters of each machine to use, to compare.")
    ] = Adapters.ALL,
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="TYPE", help="GPU type; default: the only one.")] = None,
    zone: Annotated[str | None, typer.Option("--zone", help="Zone; default: the platform picks one.")] = None,
    capacity: Annotated[
        str | None, typer.Option("--capacity", metavar="KIND", help="spot or on-demand; default: as submit's.")
    ] = None,
    image: Annotated[str | None, typer.Option("--image", help="Image to test; default: the platform's.")] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Start it without asking for confirmation.")] = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Measure the network between GPUs: ebb check network --gpus 16

    A job of a few minutes measures all-reduce, all-gather and send-receive, 1 MB to 1 GB, and is deleted; Ctrl-C deletes it too.
    Exit code 1: EFA or RDMA was there and not used, or a result was wrong; the last line says what to do.
    """
    asked = NetworkOptions(gpus=gpus, adapters=adapters.value, gpu=gpu, zone=zone, capacity=capacity, image=image)

    async def measure(ebb: Ebb, start: _Start) -> networks.NetworkReport | None:
        shown = start(networks.prepare_check(ebb, asked), networks.FIGURES)
        return shown and await networks.check_network(ebb, shown.prepared, note=shown.note, show=shown.show)

    found = _measured(ctx, namespace, measure, ask=output is Output.TEXT and not yes)
    _tell(output, {"network": record(found)}, lambda width: network_page(found, width), found.finding)


@check.command("storage")
def storage(
    ctx: typer.Context,
    *,
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", help="GPUs whose machines measure, all at once.")] = 1,
    volume: Annotated[str, typer.Option("--volume", metavar="NAME", help="data, output or another of `ebb check`.")] = "data",
    job: Annotated[str | None, typer.Option("--job", metavar="JOB", help="A running job, whose samples/s are needed.")] = None,
    samples: Annotated[float | None, typer.Option("--samples", metavar="N", help="Samples per second that are needed.")] = None,
    sample_bytes: Annotated[int, typer.Option("--sample-bytes", metavar="N", help="Bytes of a sample's file.")] = SAMPLE_BYTES,
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="TYPE", help="GPU type; default: the only one.")] = None,
    zone: Annotated[str | None, typer.Option("--zone", help="Zone; default: the platform picks one.")] = None,
    capacity: Annotated[
        str | None, typer.Option("--capacity", metavar="KIND", help="spot or on-demand; default: as submit's.")
    ] = None,
    image: Annotated[str | None, typer.Option("--image", help="Image to run; default: the platform's.")] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Start it without asking for confirmation.")] = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Measure a volume: ebb check storage --gpus 16 --job digits

    A job of a few minutes writes and reads large and small files from all its machines at once, and is deleted with them.
    Exit code 1: the volume is too slow for --job or --samples; the last line says what to do.
    """
    asked = StorageOptions(
        gpus=gpus, volume=volume, sample_bytes=sample_bytes, gpu=gpu, zone=zone, capacity=capacity, image=image
    )

    async def measure(ebb: Ebb, start: _Start) -> volumes.StorageReport | None:
        need = await _need(ebb, job, samples, sample_bytes)
        shown = start(volumes.prepare_check(ebb, asked), volumes.FIGURES)
        return shown and await volumes.check_storage(ebb, shown.prepared, need, note=shown.note, show=shown.show)

    found = _measured(ctx, namespace, measure, ask=output is Output.TEXT and not yes)
    _tell(output, {"storage": record(found)}, lambda width: storage_page(found, width), found.finding)


async def _need(ebb: Ebb, job: str | None, samples: float | None, sample_bytes: int) -> StorageNeed | None:
    """Raises BadRequest, Missing."""
    if job is not None and samples is not None:
        raise BadRequest("--job and --samples both say what is needed: give one of them.")
    if samples is not None and samples <= 0:
        raise BadRequest(f"samples {samples:g} is too few: use --samples with a number above 0.")
    if job is not None:
        samples = (await status(ebb, job)).job.samples_per_second
        if samples is None:
            raise BadRequest(f"job {job!r} has no speed yet: wait until it trains, or use --samples.")
    return None if samples is None else StorageNeed(samples_per_second=samples, sample_bytes=sample_bytes, job=job or "")


# ----------------------------------------------------------------------------------------------- what checks by jobs share


class _Shown(NamedTuple):
    """A check that was agreed to, and where its progress is shown."""

    prepared: Prepared
    note: Callable[[str], None]
    show: Show


_Start = Callable[[Prepared, int], _Shown | None]  # None where the estimate was declined
T = TypeVar("T")


def _measured(
    ctx: typer.Context, namespace: str | None, measure: Callable[[Ebb, _Start], Awaitable[T | None]], *, ask: bool
) -> T:
    """Run a check with its estimate, its question and its progress; it ends the program where there is no result."""

    async def run_it() -> T | None:
        async with session_of(ctx).open(namespace) as ebb:
            with ExitStack() as stack:
                return await measure(ebb, lambda prepared, total: _started(stack, prepared, total, ask=ask))

    try:
        found = run(run_it())
    except KeyboardInterrupt:
        note("\nebb: stopped; the job of the check is deleted.")
        raise typer.Exit(Exit.INTERRUPTED) from None
    if found is None:
        note("Nothing was sent.")
        raise typer.Exit(Exit.FAILED)
    return found


def _started(stack: ExitStack, prepared: Prepared, total: int, *, ask: bool) -> _Shown | None:
    assert prepared.fit is not None
    paragraph(check_estimate(prepared.body["metadata"]["name"], prepared.fit, estimate(prepared)))
    if ask and is_interactive() and not confirm("Start it?"):
        return None
    console = make_console(stderr=True)
    if not console.is_terminal:
        return _Shown(prepared, note, _note_operations())
    columns = (TextColumn("{task.description:<22}"), BarColumn(30), MofNCompleteColumn(), TimeElapsedColumn())
    progress = stack.enter_context(Progress(*columns, console=console, transient=True))
    task = progress.add_task("waiting for machines", total=total)

    def show(done: int, total: int, text: str) -> None:
        progress.update(task, completed=done, total=total, description=text)

    return _Shown(prepared, progress.console.print, show)


def _tell(output: Output, found: dict[str, Any], page: Callable[[int], RenderableType], finding: Finding) -> None:
    if output is Output.JSON:
        print_json(found)
    else:
        console = make_console()
        console.print(page(console.width))
    if finding.level == PROBLEM:
        raise typer.Exit(Exit.FAILED)


def _note_operations() -> Show:
    """A line for each operation that begins: for a pipe, and the log of a build."""
    seen: set[str] = set()

    def show(done: int, total: int, text: str) -> None:
        operation = text.partition(" of ")[0]
        if operation not in seen:
            seen.add(operation)
            note(f"{operation} ({done} of {total} figures are measured)")

    return show
