"""The verbs that change something: submit, scale, delete. Each reads its request, decides by pure code and sends once."""

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from workloads.cli.jobfile import is_elastic_job, read_file, request_of
from workloads.cli.live import Board
from workloads.cli.logs import Writer, follow_logs
from workloads.cli.manifest import manifest
from workloads.cli.options import Format, JobName, Namespace, Output, print_json, record, run, session_of
from workloads.cli.outcome import CliError, Exit
from workloads.cli.render import make_console, plan
from workloads.cli.request import BadRequest, Fit, Request, find_fit, price
from workloads.cli.session import Session, read_job
from workloads.cli.view import OVER, gpus_per_worker, view
from workloads.kube import ELASTIC_JOBS, Conflict, Kube, NotFound, Object
from workloads.platform import ON_DEMAND, SPOT, Platform

NOTE_SECONDS = 5.0  # no wait is silent for longer


def submit(
    ctx: typer.Context,
    program: Annotated[
        list[str] | None, typer.Argument(metavar="-- PROGRAM", help="Such as `-- python train.py --lr 0.1` or `-- -m trainer`.")
    ] = None,
    *,
    name: Annotated[str | None, typer.Option(help="Default: the program's name and four letters.")] = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs to train on; default 1.")] = None,
    gpu: Annotated[str | None, typer.Option(help="GPU type, as `ebb gpus` shows it; default: the platform's only one.")] = None,
    low: Annotated[int | None, typer.Option("--min", help="Train on as few GPUs as this; default: one machine's.")] = None,
    high: Annotated[int | None, typer.Option("--max", help="`ebb scale` may go up to this; default: --gpus.")] = None,
    zone: Annotated[str | None, typer.Option(help="Default: the platform picks one.")] = None,
    spot: Annotated[
        bool | None, typer.Option("--spot/--on-demand", help="Kind of machines; default: spot, where the GPU is on spot.")
    ] = None,
    env: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A variable for the program; may be repeated.")] = None,
    image: Annotated[str | None, typer.Option(help="Default: the platform's trainer image.")] = None,
    shm: Annotated[str | None, typer.Option(help="Size of /dev/shm, such as 1Gi; default: a quarter of the memory.")] = None,
    data: Annotated[str | None, typer.Option(help="Data folder on a shared volume; handed to the program as --data.")] = None,
    file: Annotated[Path | None, typer.Option("-f", "--file", help="Job file (YAML); flags win over it.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the manifest, send nothing.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Show the logs until the job is over.")] = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Start a job: ebb submit --gpus 2 --gpu T4 -- python train.py"""
    flags = {
        "name": name, "gpus": gpus, "gpu": gpu, "min": low, "max": high, "zone": zone, "env": env or None, "image": image,
        "shm": shm, "data": data, "capacity": None if spot is None else SPOT if spot else ON_DEMAND,
    }  # fmt: skip
    content = read_file(file) if file else {}
    made = _Submission(content, flags, tuple(program or ()), namespace, output)
    raise typer.Exit(run(made.send(session_of(ctx), dry_run=dry_run, follow=follow)))


def scale(
    ctx: typer.Context,
    job: JobName,
    gpus: Annotated[int, typer.Argument(metavar="GPUS", help="GPUs to train on from now on, between the job's --min and --max.")],
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Let a running job train on more or fewer GPUs."""
    run(_scale(session_of(ctx), job, gpus, namespace, output))


def delete(
    ctx: typer.Context,
    jobs: Annotated[list[str], typer.Argument(metavar="JOB", help="The jobs' names.")],
    *,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until the workers have left their machines.")] = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Stop jobs and remove them. Their output folders stay."""
    run(_delete(session_of(ctx), jobs, namespace, wait=not no_wait, output=output))


class _Submission:
    """What the user gave, before the platform is known."""

    def __init__(
        self, file: Mapping[str, Any], flags: Mapping[str, Any], program: tuple[str, ...], namespace: str | None, output: Output
    ) -> None:
        self._file, self._flags, self._program = file, flags, program
        self._namespace, self._output = namespace, output
        self._whole = is_elastic_job(file)
        given = [key for key, value in flags.items() if value is not None] + ["the program"] * bool(program)
        if self._whole and given:
            raise BadRequest(f"{', '.join(given)}: a file of kind ElasticJob is sent as it is. Change it in the file.")

    async def send(self, session: Session, *, dry_run: bool, follow: bool) -> Exit:
        async with session.platform() as (kube, platform):
            namespace = self._namespace or platform.jobs_namespace
            request, fit, body = self._build(platform, namespace)
            if request and fit and (self._output is Output.TEXT):
                console = make_console(stderr=dry_run)
                arguments = body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"]
                console.print(plan(request, fit, platform, arguments, console.width))
            if dry_run:
                print_json(body) if self._output is Output.JSON else typer.echo(yaml.safe_dump(body, sort_keys=False), nl=False)
                return Exit.OK
            created = await _create(kube, namespace, body)
            self._report(created, fit)
            if not follow:
                return Exit.OK
            writer = Writer(colour=make_console().is_terminal, json=self._output is Output.JSON)
            return await follow_logs(kube, namespace, created["metadata"]["name"], writer)

    def _build(self, platform: Platform, namespace: str) -> tuple[Request | None, Fit | None, Object]:
        if self._whole:
            metadata = {"namespace": namespace, **self._file["metadata"]}
            if self._namespace:
                metadata["namespace"] = self._namespace
            return None, None, {**self._file, "metadata": metadata}
        request = request_of(self._file, self._flags, self._program, suffix=secrets.token_hex(2))
        fit = find_fit(request, platform)
        return request, fit, manifest(request, fit, platform, namespace)

    def _report(self, created: Object, fit: Fit | None) -> None:
        name = created["metadata"]["name"]
        if self._output is Output.JSON:
            print_json({"job": record(view(created)), "price": record(price(fit, fit.workers)) if fit else None})
        else:
            typer.echo(f"{name} is submitted. Look: ebb status {name} --watch, ebb logs -f {name}")


async def _create(kube: Kube, namespace: str, body: Object) -> Object:
    name = body["metadata"]["name"]
    try:
        return await kube.create(ELASTIC_JOBS, body["metadata"].get("namespace") or namespace, body)
    except Conflict as error:
        raise CliError(f"name {name!r} is taken: choose another --name, or remove that job with `ebb delete {name}`.") from error
    except NotFound as error:
        raise CliError(
            f"namespace {namespace!r}, or the kind ElasticJob in it, is not there ({error}). "
            "Check -n, or run `pulumi up` to repair the stack."
        ) from error


async def _scale(session: Session, name: str, gpus: int, namespace: str | None, output: Output) -> None:
    async with session.platform() as (kube, platform):
        namespace = namespace or platform.jobs_namespace
        job = await read_job(kube, namespace, name)
        before, wanted = view(job), workers_for(job, gpus)
        if wanted != before.wanted_workers:
            job = await kube.patch(ELASTIC_JOBS, namespace, name, {"spec": {"replicaSpecs": {"Worker": {"replicas": wanted}}}})
    if output is Output.JSON:
        print_json({"job": record(view(job))})
    elif wanted == before.wanted_workers:
        typer.echo(f"{name} has {gpus} GPUs already.")
    else:
        typer.echo(f"{name} goes from {before.wanted_workers} to {wanted} workers.")


def workers_for(job: Object, gpus: int) -> int:
    """How many workers `gpus` GPUs are for this job. Raises BadRequest, or CliError for a job that is over."""
    found, size = view(job), gpus_per_worker(job) or 1
    if found.state in OVER:
        raise CliError(f"{found.name} is {found.state}: only a job that goes on can be scaled. Submit it again.")
    low, high = found.min_workers * size, found.max_workers * size
    if not low <= gpus <= high or gpus % size:
        steps = f", in steps of {size}" if size > 1 else ""
        raise BadRequest(
            f"gpus {gpus} is outside of what {found.name} was submitted for: use {low} to {high}{steps}, "
            "or submit it again with other --min and --max."
        )
    return gpus // size


async def _delete(session: Session, names: list[str], namespace: str | None, *, wait: bool, output: Output) -> None:
    async with session.platform() as (kube, platform):
        namespace = namespace or platform.jobs_namespace
        jobs = [await read_job(kube, namespace, name) for name in dict.fromkeys(names)]  # all must be there, or none goes
        for job in jobs:
            try:
                await kube.delete(ELASTIC_JOBS, namespace, job["metadata"]["name"], uid=job["metadata"]["uid"])
            except NotFound:
                continue  # somebody else was faster
        if wait:
            await asyncio.gather(*(_gone(kube, namespace, job) for job in jobs))
    done = [job["metadata"]["name"] for job in jobs]
    if output is Output.JSON:
        print_json({"deleted": done})
    else:
        typer.echo(f"{', '.join(done)} {'is' if len(done) == 1 else 'are'} deleted.")


async def _gone(kube: Kube, namespace: str, job: Object) -> None:
    """Wait until the job and its workers are gone, saying so from time to time."""
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    loop = asyncio.get_running_loop()
    async with Board(kube, namespace, name, on_trouble=_note) as board:
        noted, last = loop.time(), -1
        while (left := len(board.pods_of(uid))) or (board.job and board.job["metadata"]["uid"] == uid):
            if left and (left != last or loop.time() - noted >= NOTE_SECONDS):
                _note(f"{name}: {left} {'worker has' if left == 1 else 'workers have'} still to leave")
                noted, last = loop.time(), left
            await board.change(NOTE_SECONDS)


def _note(text: str) -> None:
    typer.echo(text, err=True)
