"""`ebb submit`."""

import secrets
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from workloads.cli.exits import Exit
from workloads.cli.options import Format, Namespace, Output, print_json, record, run, session_of
from workloads.cli.outcome import ended
from workloads.cli.render import make_console, plan
from workloads.cli.session import Session
from workloads.cli.writer import Writer
from workloads.client.ebb import Ebb
from workloads.client.errors import BadRequest
from workloads.client.fit import Fit, price
from workloads.client.jobfile import is_elastic_job, read_file, request_of
from workloads.client.logs import follow_logs
from workloads.client.submit import Prepared, prepare, prepare_whole
from workloads.client.submit import submit as send
from workloads.client.view import JobView
from workloads.platform import ON_DEMAND, SPOT


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


class _Submission:
    """What the user gave, before the platform is known."""

    def __init__(
        self, file: dict[str, Any], flags: dict[str, Any], program: tuple[str, ...], namespace: str | None, output: Output
    ) -> None:
        self._file, self._flags, self._program = file, flags, program
        self._namespace, self._output = namespace, output
        self._whole = is_elastic_job(file)
        given = [key for key, value in flags.items() if value is not None] + ["the program"] * bool(program)
        if self._whole and given:
            raise BadRequest(f"{', '.join(given)}: a file of kind ElasticJob is sent as it is. Change it in the file.")

    async def send(self, session: Session, *, dry_run: bool, follow: bool) -> Exit:
        async with session.open(self._namespace) as ebb:
            prepared = self._prepare(ebb)
            self._show(ebb, prepared, dry_run=dry_run)
            if dry_run:
                return Exit.OK
            job = await send(ebb, prepared.body)
            self._report(job, prepared.fit)
            if not follow:
                return Exit.OK
            writer = Writer(colour=make_console().is_terminal, json=self._output is Output.JSON)
            return ended(await follow_logs(ebb.kube, job.namespace, job.name, writer))

    def _prepare(self, ebb: Ebb) -> Prepared:
        if self._whole:
            return prepare_whole(ebb, self._file, self._namespace)
        return prepare(ebb, request_of(self._file, self._flags, self._program, suffix=secrets.token_hex(2)))

    def _show(self, ebb: Ebb, prepared: Prepared, *, dry_run: bool) -> None:
        body, text = prepared.body, self._output is Output.TEXT
        if prepared.request and prepared.fit and text:
            console = make_console(stderr=dry_run)
            arguments = body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"]
            console.print(plan(prepared.request, prepared.fit, ebb.platform, arguments, console.width))
        if dry_run:
            typer.echo(yaml.safe_dump(body, sort_keys=False), nl=False) if text else print_json(body)

    def _report(self, job: JobView, fit: Fit | None) -> None:
        if self._output is Output.JSON:
            print_json({"job": record(job), "price": record(price(fit, fit.workers)) if fit else None})
        else:
            typer.echo(f"{job.name} is submitted. Look: ebb status {job.name} --watch, ebb logs -f {job.name}")
