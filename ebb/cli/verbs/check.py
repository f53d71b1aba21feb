"""`ebb check`: platform, network. `platform` is what is meant where none of them is named."""

from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from typer.core import TyperGroup

from ebb.cli.exits import Exit
from ebb.cli.options import Format, Namespace, Output, Session, note, print_json, record, run, session_of
from ebb.cli.pages import check_page, network_estimate, network_page
from ebb.cli.render import make_console
from ebb.cli.terminal import confirm, is_interactive
from ebb.client.diagnostics.check import check as examine
from ebb.client.diagnostics.network import FIGURES, NetworkOptions, NetworkReport, check_network, estimate, prepare_check
from ebb.client.diagnostics.symptoms import PROBLEM

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

    `platform` may be left out. `ebb check network` measures the network between GPUs with a small job.
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
    try:
        found = run(_measure(session_of(ctx), namespace, asked, ask=output is Output.TEXT and not yes))
    except KeyboardInterrupt:
        note("\nebb: stopped; the job of the check is deleted.")
        raise typer.Exit(Exit.INTERRUPTED) from None
    if found is None:
        note("Nothing was sent.")
        raise typer.Exit(Exit.FAILED)
    if output is Output.JSON:
        print_json({"network": record(found)})
    else:
        console = make_console()
        console.print(network_page(found, console.width))
    if found.finding.level == PROBLEM:
        raise typer.Exit(Exit.FAILED)


async def _measure(session: Session, namespace: str | None, asked: NetworkOptions, *, ask: bool) -> NetworkReport | None:
    """None where the estimate was declined."""
    async with session.open(namespace) as ebb:
        prepared = prepare_check(ebb, asked)
        assert prepared.fit is not None
        note(network_estimate(prepared.body["metadata"]["name"], prepared.fit, estimate(prepared)))
        if ask and is_interactive() and not confirm("Start it?"):
            return None
        console = make_console(stderr=True)
        if not console.is_terminal:
            return await check_network(ebb, prepared, note=note, show=_note_operations())
        columns = (TextColumn("{task.description:<22}"), BarColumn(30), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("waiting for machines", total=FIGURES)

            def show(done: int, total: int, text: str) -> None:
                progress.update(task, completed=done, total=total, description=text)

            return await check_network(ebb, prepared, note=progress.console.print, show=show)


def _note_operations() -> Any:
    """A line for each operation that begins: for a pipe, and the log of a build."""
    seen: set[str] = set()

    def show(done: int, total: int, text: str) -> None:
        operation = text.partition(" of ")[0]
        if operation not in seen:
            seen.add(operation)
            note(f"{operation} ({done} of {total} sizes are measured)")

    return show
