"""`ebb local`."""

import json
import os
import secrets
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ebb.api.contract import ENV_OUTPUT_DIR
from ebb.cli.asked import JobOptions, Program, takes_job_options
from ebb.cli.exits import Exit
from ebb.cli.options import Format, Output, note, print_json, record, session_of
from ebb.cli.options import run as run_verb
from ebb.cli.render import number
from ebb.cli.verbs.submit import Submission
from ebb.client.errors import BadRequest
from ebb.client.jobs.view import FINISHED, STOPPED
from ebb.client.local_run import LocalResult, LocalRun, find_python, plan, request_of_elastic_job, start
from ebb.client.local_run.plan import Here
from ebb.client.platform.connection import find_box
from ebb.client.secrets.uses import destinations
from ebb.client.submission.jobfile import assignments, is_elastic_job
from ebb.client.submission.request import Request, command_of

_OF_ELASTIC_JOBS = ("name", "gpus", "data", "env", "secret")


@takes_job_options
def local(
    ctx: typer.Context,
    asked: JobOptions,
    program: Program = None,
    *,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Processes; default: --gpus, at most this machine's cores.")
    ] = None,
    python: Annotated[
        str | None, typer.Option(metavar="PATH", help="A Python with torch; default: this one, or the shell's.")
    ] = None,
    in_box: Annotated[
        bool, typer.Option("--in-box", help="Run on the devcluster, a Kubernetes on this machine, instead.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command, start nothing.")] = False,
    output: Format = Output.TEXT,
) -> None:
    """Run the job on this machine only: ebb local -- python train.py

    Everything lands in ./ebb-output/NAME ($EBB_OUTPUT_DIR). Ctrl-C writes a checkpoint first, if the program is elastic; the same
    command with --name NAME goes on from it.
    """
    if in_box:
        raise typer.Exit(_to_the_box(ctx, asked, tuple(program or ()), (workers, python), output, dry_run=dry_run))
    request = _request(asked, tuple(program or ()))
    run = plan(request, find_python(python), _here(), workers=workers)
    _say_what_is_left_aside(request, run, told=workers is not None)
    if dry_run:
        print_json({"run": record(run)}) if output is Output.JSON else typer.echo(str(run))
        return
    note(str(run))
    ended = start(run, note=note, quiet=output is Output.JSON)
    more = [*(["--workers", str(workers)] if workers else []), *(["--python", python] if python else [])]
    again = command_of(request, "local", name=request.name, more=more)
    told = {"run": {**record(ended), "resume": again}}
    _say_last(json.dumps(told, indent=2) if output is Output.JSON else _sentence(ended, again))
    raise typer.Exit(_code(ended))


def _request(asked: JobOptions, program: tuple[str, ...]) -> Request:
    """Raises BadRequest."""
    if not is_elastic_job(asked.file):
        return asked.request(program, suffix=secrets.token_hex(2))
    other = [key for key, value in asked.flags.items() if value is not None and key not in _OF_ELASTIC_JOBS]
    if other or program:
        what = ", ".join([*other, *(["the program"] if program else [])])
        raise BadRequest(f"{what}: of a file of kind ElasticJob only {', '.join(_OF_ELASTIC_JOBS)} can be changed here.")
    told: dict[str, Any] = {key: asked.flags[key] for key in ("name", "gpus", "data") if asked.flags[key] is not None}
    request = request_of_elastic_job(asked.file)
    told["secrets"] = {**request.secrets, **destinations(asked.flags["secret"] or ())}
    return replace(request, **told, env={**request.env, **assignments(asked.flags["env"] or ())})


def _to_the_box(
    ctx: typer.Context,
    asked: JobOptions,
    program: tuple[str, ...],
    own: tuple[int | None, str | None],
    output: Output,
    *,
    dry_run: bool,
) -> Exit:
    """As `ebb submit --follow` with the devcluster's kubeconfig. Raises NoPlatform, BadRequest."""
    if own != (None, None):
        raise BadRequest("--workers and --python are for training without --in-box: leave them out, or --in-box.")
    session = replace(session_of(ctx), kubeconfig=find_box(), context=None)
    return run_verb(Submission(asked, program, None, output).send(session, yes=True, dry_run=dry_run, follow=True))


def _here() -> Here:
    return Here(
        folder=Path.cwd(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,  # macOS has no affinity
        output_root=os.environ.get(ENV_OUTPUT_DIR) or None,
        python_path=os.environ.get("PYTHONPATH", ""),
        variables=frozenset(os.environ),
    )


def _say_what_is_left_aside(request: Request, run: LocalRun, *, told: bool) -> None:
    if run.left_aside:
        note(f"ignored, as there is no platform here: {', '.join(f'--{flag}' for flag in run.left_aside)}")
    if run.workers < request.gpus and not told:
        note(f"{run.workers} processes instead of {request.gpus}, as this machine has no more cores; --workers overrides this")


def _say_last(text: str) -> None:
    """Print the result; a closed terminal must not change the exit code, which is the training's."""
    with suppress(OSError):
        typer.echo(text)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # what is left in it would fail once more as Python ends, which then has a code of its own
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _sentence(ended: LocalResult, again: str) -> str:
    at = f" at step {ended.step}" if ended.step is not None else ""
    loss = f", loss {number(ended.loss)}" if ended.loss is not None else ""
    if ended.state == FINISHED:
        return f"{ended.name} is finished{at}{loss}. Its files: {ended.output}"
    if ended.checkpoint_step is None:
        left = f"It left no checkpoint in {ended.output}. Start again"
    else:
        left = f"Its last checkpoint is from step {ended.checkpoint_step}, in {ended.output}. Continue"
    if ended.state == STOPPED:
        return f"{ended.name} is stopped{at}. {left}: {again}"
    return f"{ended.name} failed with exit code {ended.exit_code}{at}; the reason is above. {left}: {again}"


def _code(ended: LocalResult) -> Exit:
    if ended.state == STOPPED:
        return Exit.INTERRUPTED
    return Exit.OK if ended.state == FINISHED else Exit.JOB_FAILED
