"""`ebb profile`: a trace of some steps of a running job."""

from pathlib import Path
from typing import Annotated

import typer

from ebb.cli.options import Format, JobName, Namespace, Output, call, note, print_json, record
from ebb.client.files.profiles import MOST_STEPS, take


def profile(
    ctx: typer.Context,
    job: JobName,
    *,
    steps: Annotated[int, typer.Option("--steps", metavar="N", help=f"How many, 1 to {MOST_STEPS}.")] = 5,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="Where the trace goes; default: ./JOB-profile.json.gz")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=1, help="Longest wait for it.")] = 600.0,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """A trace of some steps, as PyTorch's profiler makes it: ebb profile digits

    Of rank 0, with what ran on its CPU and its GPU. The job goes on; it stands still for a moment while the trace is written.
    Only for programs that train by run.steps() of ebb.elastic. Open the file in https://ui.perfetto.dev or chrome://tracing.
    """
    target = to or Path(f"{job}-profile.json.gz")
    found = call(ctx, namespace, lambda ebb: take(ebb, job, steps, target, timeout_seconds=timeout, note=note))
    if output is Output.JSON:
        return print_json(record(found))
    typer.echo(f"{found.file}: {found.steps} steps, {found.size / 1e6:.1f} MB. Open it in https://ui.perfetto.dev")
    return None
