"""The verbs that change a job that is there: scale, stop, resume, delete."""

from typing import Annotated

import typer

from ebb import client
from ebb.cli.options import Format, JobName, JobNames, Namespace, Output, call, note, print_json, record
from ebb.client.times import moment

NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait until the workers have left their machines.")]


def scale(
    ctx: typer.Context,
    job: JobName,
    gpus: Annotated[int, typer.Argument(metavar="GPUS", help="GPUs to train on from now on, between the job's --min and --max.")],
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Train a running job on more or fewer GPUs."""
    done = call(ctx, namespace, lambda ebb: client.scale(ebb, job, gpus))
    if output is Output.JSON:
        print_json({"job": record(done.job)})
    elif done.workers == done.before:
        typer.echo(f"{job} has {gpus} GPUs already.")
    else:
        typer.echo(f"{job} goes from {done.before} to {done.workers} workers.")


def stop(
    ctx: typer.Context,
    jobs: JobNames,
    *,
    no_wait: NoWait = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Write a checkpoint and release the machines; the job stays."""
    done = call(ctx, namespace, lambda ebb: client.stop(ebb, jobs, wait=not no_wait, note=note))
    if output is Output.JSON:
        print_json({"jobs": [record(job) for job in done]})
    else:
        typer.echo(f"{_names([job.name for job in done])} stopped. Continue: ebb resume {done[0].name}")


def resume(
    ctx: typer.Context,
    job: JobName,
    *,
    max_cost: Annotated[float | None, typer.Option(metavar="USD", help="A new budget; needed when the old one is spent.")] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="A new deadline, as 12h or 2026-12-01T18:00Z; needed when it has passed.")
    ] = None,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Continue a stopped job from its checkpoint."""
    until = None if deadline is None else moment(deadline, "deadline")
    done = call(ctx, namespace, lambda ebb: client.resume(ebb, job, max_usd=max_cost, deadline=until))
    print_json({"job": record(done)}) if output is Output.JSON else typer.echo(
        f"{job} continues. Watch: ebb status {job} --watch"
    )


def delete(
    ctx: typer.Context,
    jobs: JobNames,
    *,
    no_wait: NoWait = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Stop jobs and remove them. Their output folders stay."""
    done = call(ctx, namespace, lambda ebb: client.delete(ebb, jobs, wait=not no_wait, note=note))
    print_json({"deleted": list(done)}) if output is Output.JSON else typer.echo(f"{_names(done)} deleted.")


def _names(jobs: list[str] | tuple[str, ...]) -> str:
    return f"{', '.join(jobs)} {'is' if len(jobs) == 1 else 'are'}"
