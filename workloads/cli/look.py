"""The verbs that only look: list, status, logs, wait, gpus."""

import asyncio
import json
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from workloads.cli import logs as log_stream
from workloads.cli.live import Board
from workloads.cli.options import Format, JobName, Namespace, Output, print_json, record, run, seconds, session_of
from workloads.cli.outcome import Exit, Missing, TimedOut
from workloads.cli.render import group_table, job_page, job_table, make_console, now_local, number, steps
from workloads.cli.session import Session, read_job
from workloads.cli.view import FINISHED, OVER, JobView, view, worker_view
from workloads.contract import LABEL_JOB
from workloads.kube import ELASTIC_JOBS, PODS, Object

TICK_SECONDS = 1.0
NOTE_SECONDS = 10.0  # no wait is silent for longer


def list_jobs(ctx: typer.Context, namespace: Namespace = None, output: Format = Output.TEXT) -> None:
    """All jobs, newest first."""
    run(_list(session_of(ctx), namespace, output))


def status(
    ctx: typer.Context,
    job: JobName,
    *,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Keep it current until the job is over.")] = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """One job: size, place, progress, speed, what it lost and why."""
    if watch:
        raise typer.Exit(run(_watch(session_of(ctx), job, namespace, output)))
    run(_status(session_of(ctx), job, namespace, output))


def logs(
    ctx: typer.Context,
    job: JobName,
    *,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Until the job is over, across lost and new workers.")] = False,
    worker: Annotated[int | None, typer.Option("--worker", metavar="N", min=0, help="One worker's only.")] = None,
    tail: Annotated[int | None, typer.Option("--tail", metavar="N", min=0, help="Begin with each worker's last N lines.")] = None,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """What the workers print, merged."""
    writer = log_stream.Writer(colour=make_console().is_terminal, json=output is Output.JSON, prefix=worker is None)
    raise typer.Exit(run(_logs(session_of(ctx), job, namespace, writer, follow=follow, worker=worker, tail=tail)))


def wait(
    ctx: typer.Context,
    job: JobName,
    *,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="Give up after this, such as 90s or 2h.")] = None,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Wait until a job is over; the exit code says how it ended."""
    limit = None if timeout is None else seconds(timeout, "timeout")
    raise typer.Exit(run(_wait(session_of(ctx), job, namespace, limit, output)))


def gpus(ctx: typer.Context, output: Format = Output.TEXT) -> None:
    """What GPUs the platform has, where, at what price."""
    run(_gpus(session_of(ctx), output))


async def _list(session: Session, namespace: str | None, output: Output) -> None:
    async with session.platform() as (kube, platform):
        namespace = namespace or platform.jobs_namespace
        jobs = [view(job) for job in await kube.list(ELASTIC_JOBS, namespace)]
    jobs.sort(key=lambda job: job.created, reverse=True)
    if output is Output.JSON:
        print_json({"jobs": [record(job) for job in jobs]})
    elif not jobs:
        typer.echo(f"No jobs in {namespace} yet. Start one: ebb submit --gpus 1 -- python train.py", err=True)
    else:
        console = make_console()
        console.print(job_table(jobs, now_local(), console.width))


async def _status(session: Session, name: str, namespace: str | None, output: Output) -> None:
    async with session.platform() as (kube, platform):
        namespace = namespace or platform.jobs_namespace
        job = await read_job(kube, namespace, name)
        pods = await kube.list(PODS, namespace, labels=f"{LABEL_JOB}={name}")
    if output is Output.JSON:
        print_json({"job": record(view(job, now_local().timestamp())), "workers": [record(worker_view(pod)) for pod in pods]})
    else:
        console = make_console()
        console.print(_page(job, pods, console.width))


async def _watch(session: Session, name: str, namespace: str | None, output: Output) -> Exit:
    """A page that redraws itself; into a pipe, a line for each change; a JSON object each with -o json."""
    console = make_console()
    async with session.platform() as (kube, platform):
        namespace = namespace or platform.jobs_namespace
        await read_job(kube, namespace, name)
        if output is Output.JSON or not console.is_terminal:
            async with Board(kube, namespace, name, on_trouble=_note) as board:
                return await _until_over(board, typer.echo, _json_line if output is Output.JSON else summary)
        async with Board(kube, namespace, name) as board:
            with Live(console=console, auto_refresh=False) as live:
                while board.job is not None:
                    page = _page(board.job, board.pods, console.width)
                    live.update(Group(page, Text(board.trouble, "yellow")) if board.trouble else page, refresh=True)
                    if (state := view(board.job).state) in OVER:
                        return Exit.OK if state == FINISHED else Exit.JOB_FAILED
                    await board.change(TICK_SECONDS)
    raise Missing(f"{name} was deleted.")


async def _logs(
    session: Session,
    name: str,
    namespace: str | None,
    writer: log_stream.Writer,
    *,
    follow: bool,
    worker: int | None,
    tail: int | None,
) -> Exit:
    async with session.platform() as (kube, platform):
        namespace = namespace or platform.jobs_namespace
        await read_job(kube, namespace, name)
        if follow:
            return await log_stream.follow_logs(kube, namespace, name, writer, worker=worker, tail=tail)
        await log_stream.print_logs(kube, namespace, name, writer, worker=worker, tail=tail)
        return Exit.OK


async def _wait(session: Session, name: str, namespace: str | None, limit: float | None, output: Output) -> Exit:
    async with session.platform() as (kube, platform):
        namespace = namespace or platform.jobs_namespace
        await read_job(kube, namespace, name)
        async with Board(kube, namespace, name, on_trouble=_note) as board:
            try:
                async with asyncio.timeout(limit):
                    code = await _until_over(board, _note, summary)
            except TimeoutError as error:
                raise TimedOut(f"{name} is not over after {limit:g} s; it goes on.") from error
            if output is Output.JSON and board.job:
                print_json({"job": record(view(board.job))})
            return code


async def _gpus(session: Session, output: Output) -> None:
    async with session.platform() as (_, platform):
        pass
    if output is Output.JSON:
        print_json({"groups": [record(group) for group in platform.gpu_groups()]})
    else:
        console = make_console()
        console.print(group_table(platform, console.width))


async def _until_over(board: Board, say: Callable[[str], None], line: Callable[[JobView], str]) -> Exit:
    """Say what changes, and something every few seconds, until the job is over. Raises Missing when it is deleted."""
    loop = asyncio.get_running_loop()
    said, at = "", 0.0
    while board.job is not None:
        job = view(board.job)
        news = f"{job.state} {job.workers} {job.wanted_workers} {job.reclaims} {job.detail}"
        if news != said or loop.time() - at >= NOTE_SECONDS:
            say(line(job))
            said, at = news, loop.time()
        if job.state in OVER:
            return Exit.OK if job.state == FINISHED else Exit.JOB_FAILED
        await board.change(TICK_SECONDS)
    raise Missing(f"{board.name} was deleted.")


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


def _page(job: Object, pods: list[Object], width: int) -> RenderableType:
    workers = sorted((worker_view(pod) for pod in pods), key=lambda item: item.worker)
    return job_page(view(job, now_local().timestamp()), workers, now_local(), width)


def _note(text: str) -> None:
    typer.echo(text, err=True)
