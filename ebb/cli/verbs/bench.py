"""`ebb bench`: scaling."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ebb.api.clock import stamp
from ebb.cli.asked import Program
from ebb.cli.exits import Exit
from ebb.cli.options import Format, Namespace, Output, Session, note, paragraph, print_json, record, run, session_of
from ebb.cli.pages import scaling_page, scaling_plan
from ebb.cli.render import make_console
from ebb.cli.terminal import confirm, is_interactive
from ebb.client.errors import BadRequest, ClientError
from ebb.client.jobs.view import JobView
from ebb.client.platform.connection import find_user
from ebb.client.scaling import PRESETS, ScalingPlan, ScalingReport, measure, prepare_sizes, scaling_html
from ebb.client.scaling.figures import gpus_text

bench = typer.Typer()
DEFAULT_SIZES = "4,8,16,32,64"


@bench.callback()
def main() -> None:
    """Speed and cost by number of GPUs: ebb bench scaling --gpus 4,8,16"""


@bench.command()
def scaling(
    ctx: typer.Context,
    program: Program = None,
    *,
    gpus: Annotated[
        str, typer.Option("--gpus", metavar="A,B,..", help="Sizes to measure; 1,2,4,8: one machine.")
    ] = DEFAULT_SIZES,
    preset: Annotated[
        str | None, typer.Option("--preset", metavar="NAME", help=f"{', '.join(PRESETS)}; default: resnet50, or the program.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Of the jobs, with the size after it; default: scaling-PRESET.")
    ] = None,
    data: Annotated[str | None, typer.Option("--data", help="As submit's: folder on a shared volume, or a bucket.")] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="TYPE", help="GPU type; default: the only one.")] = None,
    zone: Annotated[str | None, typer.Option("--zone", help="Zone; default: the platform picks one.")] = None,
    capacity: Annotated[
        str | None, typer.Option("--capacity", metavar="KIND", help="spot or on-demand; default: as submit's.")
    ] = None,
    image: Annotated[str | None, typer.Option("--image", help="Default: the platform's trainer image.")] = None,
    page: Annotated[Path | None, typer.Option("--page", metavar="FILE", help="The page; default: NAME.html.")] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Start them without asking for confirmation.")] = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Time an epoch at each number of GPUs.

    ebb bench scaling --gpus 4,8,16 --data imagenet submits a job for each size, one after the other. The same command again goes
    on with the sizes that are missing. The page has speed-up, efficiency and cost. In a program of your own, {gpus} stands for
    the size: -- python train.py --batch {gpus}
    """
    words = tuple(program or ())
    plan = _plan(words, preset, name, gpus, data=data, gpu=gpu, zone=zone, capacity=capacity, image=image)
    place = page or (Path(f"{plan.name}.html") if output is Output.TEXT else None)
    if place is not None and (place.is_dir() or not place.parent.is_dir()):
        raise BadRequest(f"page {str(place)!r} cannot be written: name a file in a folder that is there.")
    bench_run = _Bench(session_of(ctx), plan, place, output)
    try:
        found = run(bench_run.measure(namespace, ask=output is Output.TEXT and not yes))
    except KeyboardInterrupt:
        note("\nebb: stopped watching; the job that runs continues. The same command goes on from there.")
        raise typer.Exit(Exit.INTERRUPTED) from None
    if found is None:
        note("Nothing was sent.")
        raise typer.Exit(Exit.FAILED)
    if output is Output.JSON:
        print_json({"scaling": record(found)})
    else:
        console = make_console()
        console.print(scaling_page(found, console.width))
        typer.echo(str(place))
    if bench_run.failure:
        note(f"ebb: {bench_run.failure}")
        raise typer.Exit(Exit.JOB_FAILED)


def _plan(words: tuple[str, ...], preset: str | None, name: str | None, gpus: str, **rest: str | None) -> ScalingPlan:
    """Raises BadRequest."""
    if preset is None and not words:
        preset = "resnet50"
    if preset is not None and preset not in PRESETS:
        raise BadRequest(f"preset {preset!r} is unknown: use {', '.join(PRESETS)}, or name a program, as in -- python train.py.")
    try:
        sizes = tuple(int(word) for word in gpus.split(","))
    except ValueError:
        raise BadRequest(f"gpus {gpus!r} is no list of numbers: write it as {DEFAULT_SIZES}.") from None
    if name is None and preset is None:
        raise BadRequest("name is missing: a program of your own needs one, as in --name scaling-mine, to find its jobs again.")
    return ScalingPlan(
        name=name or f"scaling-{(preset or '').replace('_', '-')}",
        sizes=sizes,
        preset=PRESETS[preset] if preset else None,
        program=words,
        user=find_user(),
        **rest,  # type: ignore[arg-type]
    )


class _Bench:
    """One run of the command. `failure`: why it ended before the last size."""

    def __init__(self, session: Session, plan: ScalingPlan, page: Path | None, output: Output) -> None:
        self._session, self._plan, self._page, self._output = session, plan, page, output
        self.failure = ""

    async def measure(self, namespace: str | None, *, ask: bool) -> ScalingReport | None:
        """The page is written after each size. None where the plan was declined."""
        async with self._session.open(namespace) as ebb:
            paragraph(scaling_plan(self._plan, prepare_sizes(ebb, self._plan)))
            if ask and is_interactive() and not confirm("Start them?"):
                return None
            console = make_console(stderr=True)
            columns = (TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.fields[rest]}"), TimeElapsedColumn())
            found: ScalingReport | None = None
            with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
                show = _Show(self._plan, progress, quiet=self._output is Output.JSON)
                try:
                    async for found in measure(ebb, self._plan, say=show.job, note=show.note):
                        self._write(found)
                        show.size(found)
                except BadRequest:
                    raise
                except ClientError as error:
                    if found is None:
                        raise
                    self.failure = str(error)
            return found

    def _write(self, found: ScalingReport) -> None:
        if self._page is None:
            return
        try:
            self._page.write_text(scaling_html(found, made=stamp(datetime.now(UTC).timestamp())), encoding="utf-8")
        except OSError as error:
            raise BadRequest(f"page {str(self._page)!r} cannot be written ({error.strerror}): name another file.") from error


class _Show:
    """Progress: a bar on a terminal, lines into a pipe."""

    def __init__(self, plan: ScalingPlan, progress: Progress, *, quiet: bool) -> None:
        self._progress, self._quiet = progress, quiet
        self._sizes = sorted(plan.sizes)
        self._bar = progress.add_task("", total=None, rest="")
        self._said: set[int] = set()
        self._line = ""

    def note(self, text: str) -> None:
        note(text) if self._progress.disable else self._progress.console.print(text)

    def job(self, gpus: int, job: JobView) -> None:
        place = f"{gpus_text(gpus)} ({self._sizes.index(gpus) + 1} of {len(self._sizes)})"
        steps = f"step {job.step}/{job.total_steps}" if job.step is not None and job.total_steps else ""
        rest = ", ".join(filter(None, (job.state, steps)))
        self._progress.update(
            self._bar, description=place, completed=job.step or 0, total=job.total_steps, rest=rest, refresh=True
        )
        line = f"{place}: {rest}"
        if self._progress.disable and not self._quiet and line != self._line:
            note(line)
        self._line = line

    def size(self, found: ScalingReport) -> None:
        """A line for each size that has its figures now."""
        for size in found.measured:
            if size.gpus not in self._said and not self._quiet:
                faster = f", {size.speed_up:.2f} times as fast" if size.speed_up and size.ideal > 1 else ""
                self.note(f"{gpus_text(size.gpus)}: an epoch in {size.epoch_seconds:.1f} s{faster}")
            self._said.add(size.gpus)
