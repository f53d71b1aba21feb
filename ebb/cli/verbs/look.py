"""The verbs that look at jobs: list, status, wait."""

import json
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from ebb import client
from ebb.cli.errors import exit_code_of
from ebb.cli.exits import Exit
from ebb.cli.options import (
    Format,
    JobName,
    JobNames,
    Namespace,
    Output,
    call,
    note,
    print_json,
    record,
    show,
)
from ebb.cli.pages import job_page
from ebb.cli.render import job_table, loans_table, make_console, now_local, number, queue_table, steps
from ebb.client.errors import Missing
from ebb.client.jobs.nodes import Nodes
from ebb.client.jobs.view import FAILED_STATE, OVER, JobView
from ebb.client.jobs.watch import TICK_SECONDS, Board, see, until_over, wait_for, with_copy
from ebb.client.platform.connection import read_job
from ebb.client.queue import QueueReport, queue
from ebb.client.times import seconds


class Goal(StrEnum):
    """--for of `wait`."""

    FINISHED = "finished"
    RUNNING = "running"


def list_jobs(
    ctx: typer.Context,
    *,
    waiting: Annotated[bool, typer.Option("--queue", help="Only jobs that wait for their turn: place and reason.")] = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """All jobs, newest first."""
    if waiting:  # of all namespaces: each takes its turn among all
        show(ctx, namespace, queue, output, json=record, text=_queue_text)
    else:
        show(ctx, namespace, _list, output, json=_jobs_json, text=_jobs_text)


def _queue_text(found: QueueReport) -> None:
    console = make_console()
    if found.queue:
        console.print(queue_table(found.queue, console.width))
    else:
        note("No job waits for its turn.")
    if found.waiting > len(found.queue):
        note(f"{found.waiting - len(found.queue)} more wait behind these.")
    if found.borrowing:
        console.print(loans_table(found.borrowing, console.width))


def _jobs_json(found: tuple[str, tuple[JobView, ...]]) -> dict[str, Any]:
    return {"jobs": [record(job) for job in found[1]]}


def _jobs_text(found: tuple[str, tuple[JobView, ...]]) -> None:
    place, jobs = found
    if not jobs:
        note(f"No jobs in {place} yet. Start one: ebb submit --gpus 1 -- python train.py")
    else:
        console = make_console()
        console.print(job_table(jobs, now_local(), console.width))


def status(
    ctx: typer.Context,
    job: JobName,
    *,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Keep watching until the job ends.")] = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """One job: size, place, progress, speed, reclaims and their causes."""
    if watch:
        raise typer.Exit(call(ctx, namespace, lambda ebb: _watch(ebb, job, output)))
    seen = call(ctx, namespace, lambda ebb: client.status(ebb, job))
    if output is Output.JSON:
        print_json(record(seen))
    else:
        console = make_console()
        console.print(job_page(seen.job, seen.workers, now_local(), console.width, seen.reclaims))
        for name, address in seen.dashboards.items():
            typer.echo(f"  {name}: {address}")  # whole, however wide the terminal is: one that is cut leads nowhere


def wait(
    ctx: typer.Context,
    jobs: JobNames,
    *,
    goal: Annotated[
        Goal, typer.Option("--for", help="What to wait for; a job that has ended counts as running, too.")
    ] = Goal.FINISHED,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="Give up after this, such as 90s or 2h.")] = None,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Wait until jobs end; the exit code says how."""
    limit = None if timeout is None else seconds(timeout, "timeout")

    def say(seen: JobView) -> None:
        note(summary(seen))

    done = call(ctx, namespace, lambda ebb: wait_for(ebb, jobs, goal, timeout_seconds=limit, say=say, note=note))
    if output is Output.JSON:
        print_json({"job": record(done[0]), "jobs": [record(job) for job in done]})
    raise typer.Exit(Exit.JOB_FAILED if any(job.state == FAILED_STATE for job in done) else Exit.OK)


async def _list(ebb: client.Ebb) -> tuple[str, tuple[JobView, ...]]:
    return ebb.namespace, await client.list_jobs(ebb)


async def _watch(ebb: client.Ebb, name: str, output: Output) -> Exit:
    """A page that redraws itself; into a pipe, a line for each change; a JSON object each with -o json."""
    await read_job(ebb.kube, ebb.namespace, name)
    line = _json_line if output is Output.JSON else summary
    if output is Output.JSON or not make_console().is_terminal:
        return await _lines(ebb, name, line)
    return await _page(ebb, name)


async def _lines(ebb: client.Ebb, name: str, line: Callable[[JobView], str]) -> Exit:
    async with Board(ebb.kube, ebb.namespace, name, on_trouble=note) as board:
        return exit_code_of(await until_over(board, lambda job: typer.echo(line(job))))


async def _page(ebb: client.Ebb, name: str) -> Exit:
    console = make_console()
    nodes = await Nodes.read(ebb.kube)
    async with Board(ebb.kube, ebb.namespace, name) as board:
        with Live(console=console, auto_refresh=False) as live:
            while board.job is not None:
                nodes = await nodes.with_those_of(board.pods, ebb.kube)
                seen = await with_copy(ebb.kube, board.job, see(board.job, board.pods, nodes))
                page = job_page(seen.job, seen.workers, now_local(), console.width, seen.reclaims)
                live.update(Group(page, Text(board.trouble, "yellow")) if board.trouble else page, refresh=True)
                if seen.job.state in OVER:
                    return exit_code_of(seen.job)
                await board.change(TICK_SECONDS)
    raise Missing(f"{name} was deleted.")


def summary(job: JobView) -> str:
    """A job in one line."""
    parts = [
        f"{job.name} is {job.state}",
        f"{job.workers} of {job.wanted_workers} workers" if job.state not in OVER else "",
        f"step {steps(job)}" if job.step is not None else "",
        f"loss {number(job.loss)}" if job.loss is not None else "",
        f"{job.reclaims} reclaimed" if job.reclaims else "",
        job.detail if job.state != "running" else "",
    ]
    return ", ".join(filter(None, parts))


def _json_line(job: JobView) -> str:
    return json.dumps({"job": record(job)})
