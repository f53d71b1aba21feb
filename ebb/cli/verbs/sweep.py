"""`ebb sweep`: run, show, stop, delete. `run` is what is meant where none of them is named."""

import json
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.live import Live
from typer.core import TyperGroup

from ebb import client
from ebb.api.parts import ASHA, Halving
from ebb.cli.asked import JobOptions, takes_job_options
from ebb.cli.exits import Exit
from ebb.cli.options import Format, Mode, Namespace, Output, call, note, paragraph, print_json, record
from ebb.cli.pages import price_line, summary, sweep_page
from ebb.cli.render import make_console, plan
from ebb.cli.terminal import confirm, is_interactive
from ebb.client import sweep as sweeps
from ebb.client.errors import BadRequest
from ebb.client.jobs.view import FAILED_STATE
from ebb.client.staging.code import packed
from ebb.client.sweep.overrides import is_override
from ebb.client.sweep.points import Point

RUN = "run"

SweepName = Annotated[str, typer.Argument(metavar="NAME", help="The sweep's name.")]
Metric = Annotated[
    str, typer.Option(metavar="METRIC", help="Runs are compared by it: loss, samples_per_second, or one of the program's own.")
]
ModeOption = Annotated[Mode | None, typer.Option("--mode", help="The best is the least or the greatest; loss: min.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait until the workers have left their machines.")]
Watch = Annotated[bool, typer.Option("-w", "--watch", help="Keep watching until all runs end.")]


class _Sweeps(TyperGroup):
    """`ebb sweep lr=1,2 -- python train.py` without a word for it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = not args or args[0] in self.commands or args[0] in ctx.help_option_names
        return super().parse_args(ctx, args if named else [RUN, *args])


sweep = typer.Typer(cls=_Sweeps)


@sweep.callback()
def main() -> None:
    """Many runs: ebb sweep --name scan lr=0.1,0.01 -- python train.py

    `run` may be left out; its options: ebb sweep run --help. The same command again submits only the missing runs.
    """


@sweep.command(RUN)
@takes_job_options
def run(
    ctx: typer.Context,
    asked: JobOptions,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUES... -- PROGRAM", help="Values as 0.1,0.01 or range(0,1,0.5) or interval(0,1)."),
    ] = None,
    *,
    random: Annotated[int | None, typer.Option("--random", metavar="N", help="Draw N runs; default: all combinations.")] = None,
    seed: Annotated[int, typer.Option(help="For --random: the same seed draws the same runs.")] = 0,
    sampler: Annotated[
        str | None, typer.Option("--sampler", metavar="NAME", help="tpe: Optuna chooses each of N runs when it starts.")
    ] = None,
    hydra: Annotated[
        bool, typer.Option("--hydra", help="Pass values as lr=0.1; default: --lr 0.1, or in place of {lr}.")
    ] = False,
    max_parallel: Annotated[
        int | None, typer.Option(metavar="N", help="At most N runs train at once, even after this command ends.")
    ] = None,
    stop_worst: Annotated[
        float | None,
        typer.Option(metavar="FRACTION", help="Stop the worst of the runs that got as far, such as 0.5 of them."),
    ] = None,
    asha: Annotated[
        int | None, typer.Option("--asha", metavar="N", help="Runs pause; the best of every N go on to N times as many steps.")
    ] = None,
    metric: Metric = "loss",
    mode: ModeOption = None,
    after: Annotated[
        int | None, typer.Option(metavar="STEPS", help="Compare first at this step, then at 2 or N times it.")
    ] = None,
    watch: Watch = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Send everything without asking for confirmation.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the manifests, send nothing.")] = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Submit a run for each combination of values: a job each, under one name.

    \b
    lr=0.1,0.01  arch=choice(a,b)        these values; quotes around odd ones
    wd=range(0,0.1,0.05)                 0 and 0.05: the stop is left out
    lr=interval(0.01,0.1)                any number between, for --random N
    lr=tag(log,interval(1e-5,1e-1))      the same, even by logarithm
    depth=int(interval(1,9))             a whole number
    """
    overrides = tuple(takewhile(is_override, words or ()))
    compared = sweeps.metric_of(metric, mode)
    axes = sweeps.parse(overrides)
    search = sweeps.Search(sampler=sampler, seed=seed, metric=compared, axes=axes) if sampler is not None else None
    points = sweeps.slots(axes, random) if search else sweeps.points_of(axes, random, seed)
    made = _plan(asked, points, tuple(words or ())[len(overrides) :], hydra=hydra, max_parallel=max_parallel)
    made = replace(made, search=search, halving=_rule(stop_worst, asha, compared, after))
    if made.request.code:
        made = replace(made, code=packed(Path(made.request.code), note))
    if dry_run:
        return call(ctx, namespace, lambda ebb: _print_manifests(ebb, made, output))
    raise typer.Exit(call(ctx, namespace, lambda ebb: _run(ebb, made, compared, output, yes=yes, watch=watch)))


@sweep.command()
def show(
    ctx: typer.Context,
    name: SweepName,
    *,
    watch: Watch = False,
    metric: Metric = "loss",
    mode: ModeOption = None,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """All runs of a sweep in one table: settings, progress, cost."""
    compared = sweeps.metric_of(metric, mode)
    if watch:
        raise typer.Exit(call(ctx, namespace, lambda ebb: _follow(ebb, name, compared, output)))
    seen = call(ctx, namespace, lambda ebb: sweeps.show(ebb, name, metric=compared))
    if output is Output.JSON:
        print_json({"sweep": record(seen)})
    else:
        console = make_console()
        console.print(sweep_page(seen, console.width))
        for each in seen.notes:
            note(each)


@sweep.command()
def stop(
    ctx: typer.Context, name: SweepName, *, no_wait: NoWait = False, namespace: Namespace = None, output: Format = Output.TEXT
) -> None:
    """Let all runs write a checkpoint and release their machines; they stay."""
    done = call(ctx, namespace, lambda ebb: sweeps.stop(ebb, name, wait=not no_wait, note=note))
    if output is Output.JSON:
        print_json({"stopped": list(done)})
    else:
        typer.echo(f"{_count(len(done), f' of {name}')} stopped." + (f" Continue one: ebb resume {done[0]}" if done else ""))


@sweep.command()
def delete(
    ctx: typer.Context, name: SweepName, *, no_wait: NoWait = False, namespace: Namespace = None, output: Format = Output.TEXT
) -> None:
    """Stop all runs and remove them. Their output folders stay."""
    done = call(ctx, namespace, lambda ebb: sweeps.delete(ebb, name, wait=not no_wait, note=note))
    print_json({"deleted": list(done)}) if output is Output.JSON else typer.echo(f"{_count(len(done), f' of {name}')} deleted.")


def _plan(
    asked: JobOptions,
    points: tuple[Point, ...],
    program: tuple[str, ...],
    *,
    hydra: bool,
    max_parallel: int | None,
) -> sweeps.SweepPlan:
    """Raises BadRequest."""
    request = asked.request(program, suffix="sweep")
    if not (asked.flags["name"] or asked.file.get("name")):
        raise BadRequest(
            "name is missing: give the sweep one, as in --name lr-scan, so that the same command finds its runs again."
        )
    style = sweeps.HYDRA if hydra else sweeps.FLAGS
    made = sweeps.SweepPlan(name=request.name, request=request, points=points, style=style, max_parallel=max_parallel)
    first = asked.with_code(made.request_of(points[0]), program)  # a point may be part of the program's name
    return replace(made, request=replace(request, code=first.code))


def _rule(fraction: float | None, factor: int | None, metric: sweeps.SweepMetric, after: int | None) -> Halving | None:
    """Raises BadRequest."""
    if fraction is not None and factor is not None:
        raise BadRequest("stop-worst and --asha are two ways to stop runs early: give one of them.")
    option, example = ("asha", 3) if factor is not None else ("stop-worst", 0.5)
    if fraction is None and factor is None:
        if after is not None:
            raise BadRequest("after needs --stop-worst or --asha too, as in --stop-worst 0.5 --after 200.")
        return None
    if after is None:
        raise BadRequest(f"{option} needs --after too, as in --{option} {example} --after 200.")
    if fraction is not None:
        rule = sweeps.stop_worst(fraction, after=after, metric=metric.name)
    else:
        rule = sweeps.asha(factor or 0, after=after, metric=metric.name)
    if metric.more_is_better != sweeps.METRICS[metric.name]:
        raise BadRequest(f"mode {metric.mode!r} would let --{option} stop the best runs by {metric.name}: leave --mode out.")
    return rule


def _rule_note(rule: Halving) -> str:
    if rule.algorithm == ASHA:
        best = f"by {rule.metric} the best of every {rule.factor} go on to {rule.factor} times as many"
        said = f"Runs pause at step {rule.after}; {best}, and so on."
    else:
        said = f"The worst {rule.fraction:.0%} by {rule.metric} are stopped at step {rule.after}, at twice it, and so on."
    return f"{said} The platform does it, also when your laptop is closed."


async def _print_manifests(ebb: client.Ebb, made: sweeps.SweepPlan, output: Output) -> None:
    bodies = [item.body for item in sweeps.prepared(ebb, made)]
    if output is Output.JSON:
        print_json({"jobs": bodies})
    else:
        typer.echo(yaml.safe_dump_all(bodies, sort_keys=False), nl=False)


async def _run(
    ebb: client.Ebb,
    made: sweeps.SweepPlan,
    metric: sweeps.SweepMetric,
    output: Output,
    *,
    yes: bool,
    watch: bool,
) -> Exit:
    if output is Output.TEXT:
        _show_plan(ebb, made)
        if not yes and is_interactive() and not confirm("Start them?"):
            note("Nothing was sent.")
            return Exit.FAILED
    started = await sweeps.start(ebb, made, note)
    if made.halving:
        paragraph(_rule_note(made.halving))
    if output is Output.TEXT:
        there = f", {len(started.there)} were there" if started.there else ""
        typer.echo(f"{_count(len(started.submitted))} submitted{there}. Watch: ebb sweep show {made.name} --watch")
    if watch:
        return await _follow(ebb, made.name, metric, output)
    if output is Output.JSON:
        print_json({"sweep": record(await sweeps.show(ebb, made.name, metric=metric)), **record(started)})
    return Exit.OK


def _show_plan(ebb: client.Ebb, made: sweeps.SweepPlan) -> None:
    """The first run in full, and what all of them cost."""
    first, console = sweeps.prepared(ebb, made)[0], make_console()
    assert first.request is not None
    assert first.fit is not None
    arguments = first.body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"]
    console.print(plan(first.request, first.fit, ebb.platform, arguments, console.width))
    console.print(price_line(made, first.fit))


async def _follow(ebb: client.Ebb, name: str, metric: sweeps.SweepMetric, output: Output) -> Exit:
    """A table that redraws itself; into a pipe, a line for each change; a JSON object each with -o json."""
    console = make_console()
    if output is Output.TEXT and console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            async for seen in sweeps.watch(ebb, name, metric=metric, note=live.console.print):
                live.update(sweep_page(seen, console.width), refresh=True)
        return _ended(seen)
    said = ""
    async for seen in sweeps.watch(ebb, name, metric=metric, note=note):
        line = json.dumps({"sweep": record(seen)}) if output is Output.JSON else summary(seen)
        if line != said:
            typer.echo(line)
            said = line
    return _ended(seen)


def _ended(seen: sweeps.SweepView) -> Exit:
    return Exit.JOB_FAILED if any(run.state == FAILED_STATE for run in seen.runs) else Exit.OK


def _count(runs: int, of: str = "") -> str:
    return f"{runs} run{of} is" if runs == 1 else f"{runs} runs{of} are"
