"""The options that say which job is wanted: `ebb submit`, `ebb sweep` and `ebb local` have them all, from here.

    @asks
    def submit(ctx: typer.Context, asked: Asked, program: ... = None, *, dry_run: ... = False) -> None:
        request = asked.request(program or (), suffix)

A new option is a parameter of `options` and a line in its `flags`.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ebb.api.parts import SPOT_THEN_ON_DEMAND
from ebb.api.platform import ON_DEMAND, SPOT
from ebb.cli.options import secret_names
from ebb.client.errors import BadRequest
from ebb.client.platform.connection import find_user
from ebb.client.submission.jobfile import is_elastic_job, read_file, request_of
from ebb.client.submission.program import with_code
from ebb.client.submission.request import Request

Program = Annotated[
    list[str] | None, typer.Argument(metavar="-- PROGRAM", help="For example `-- python train.py --lr 0.1` or `-- -m trainer`.")
]


@dataclass(frozen=True)
class JobOptions:
    """A job file and the flags, before the platform is known. Flags that were not given are None."""

    file: dict[str, Any]
    flags: dict[str, Any]
    place: Path | None = None  # the folder of the file

    def with_code(self, request: Request, program: Iterable[str]) -> Request:
        """The request with the folder of its program. One of the file is looked for beside the file first. Raises BadRequest."""
        beside = [self.place] if self.place is not None and not list(program) else []
        return with_code(request, [*beside, Path()])

    def request(self, program: Iterable[str], suffix: str) -> Request:
        """Both as one, which a whole ElasticJob cannot be. Raises BadRequest."""
        if self.is_whole(program):
            raise BadRequest("a file of kind ElasticJob is one job, sent as it is: write a short job file, or use `ebb submit`.")
        return replace(request_of(self.file, self.flags, program, suffix=suffix), user=find_user())

    def is_whole(self, program: Iterable[str]) -> bool:
        """Return whether the file is an ElasticJob, which is sent as it is. Raises BadRequest where flags would change it."""
        if not is_elastic_job(self.file):
            return False
        given = [key for key, value in self.flags.items() if value is not None] + ["the program"] * bool(list(program))
        if given:
            raise BadRequest(f"{', '.join(given)}: a file of kind ElasticJob is sent as it is. Change it in the file.")
        return True


def options(
    *,
    name: Annotated[str | None, typer.Option(help="Default: the program's name and four letters; a sweep needs one.")] = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs to train on; default 1.")] = None,
    gpu: Annotated[str | None, typer.Option(help="GPU type, as `ebb gpus` shows it; default: the platform's only one.")] = None,
    low: Annotated[int | None, typer.Option("--min", help="Train on as few as this many GPUs; default: one machine's.")] = None,
    high: Annotated[int | None, typer.Option("--max", help="`ebb scale` may go up to this; default: --gpus.")] = None,
    zone: Annotated[str | None, typer.Option(help="Default: the platform picks one.")] = None,
    spot: Annotated[
        bool | None, typer.Option("--spot/--on-demand", help="Kind of machines; default: spot, if the GPU is offered on spot.")
    ] = None,
    spot_then_on_demand: Annotated[
        bool,
        typer.Option("--spot-then-on-demand", help="Spot; on-demand while there is none; with --deadline, when time gets short."),
    ] = False,
    priority: Annotated[str | None, typer.Option(help="job (the default), or elastic: yields to all others.")] = None,
    queue: Annotated[
        str | None, typer.Option(help="A queue of Kueue, which then gives the job its turn; default: the platform's own.")
    ] = None,
    max_cost: Annotated[float | None, typer.Option(metavar="USD", help="Stop, with a checkpoint, before it costs more.")] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop then, with a checkpoint: 12h, or 2026-12-01T18:00Z.")
    ] = None,
    hold_on_failure: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Where the program fails, stop, and hold that machine for `ebb exec`: 30m, at most 4h."
        ),
    ] = None,
    burn_in: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Test each machine's GPUs for so long before it begins work, and replace a broken one: 60s; 10s to 1h.",
        ),
    ] = None,
    code: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Send this folder, less what .gitignore ignores; default: that of a program here."),
    ] = None,
    no_code: Annotated[bool, typer.Option("--no-code", help="Send no folder: the image has the program.")] = False,
    env: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A variable for the program; may be repeated.")] = None,
    env_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Lines K=V. Anyone who can see the job sees them: tokens go into --secret.")
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=PLACE]",
            help="hf-token: the variable HF_TOKEN; hf-token=OTHER; hf-token=/secrets/hf: a file. `ebb secret set` has made it.",
            autocompletion=secret_names,
        ),
    ] = None,
    registry_secret: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Login to the image's registry; see `ebb secret set`.", autocompletion=secret_names),
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Any one with Python 3.9 and torch 2.1, or newer; default: the platform's trainer image.")
    ] = None,
    run_as: Annotated[
        str | None, typer.Option(metavar="USER", help="Number, root, or image: the one that it names; default: 1000.")
    ] = None,
    writable_root: Annotated[
        bool, typer.Option("--writable-root", help="Let the workers write to their root file system.")
    ] = False,
    shm: Annotated[str | None, typer.Option(help="Size of /dev/shm, such as 1Gi; default: a quarter of the memory.")] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Folder on a shared volume, or a bucket (s3://, gs://, az://) that is copied there once, before the job "
            "asks for machines; passed to the program as --data."
        ),
    ] = None,
    progress_regex: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Progress by the log: 'step (?P<step>\\d+).*loss (?P<loss>[\\d.]+)'."),
    ] = None,
    file: Annotated[Path | None, typer.Option("-f", "--file", help="Job file (YAML); flags win over it.")] = None,
) -> JobOptions:
    """Typer's options -> what they say. Raises BadRequest for a file that cannot be read."""
    if spot_then_on_demand and spot is not None:
        raise BadRequest("--spot-then-on-demand says what --spot and --on-demand say: give one of the three.")
    if no_code and code is not None:
        raise BadRequest("--no-code says the opposite of --code: give one of the two.")
    if code == "":
        raise BadRequest("code is empty: name the folder of your program, as in --code .")
    flags = {
        "name": name, "gpus": gpus, "gpu": gpu, "min": low, "max": high, "zone": zone, "env": env or None, "image": image,
        "shm": shm, "data": data, "capacity": None if spot is None else SPOT if spot else ON_DEMAND, "priority": priority,
        "queue": queue,
        "max-cost": max_cost, "deadline": deadline, "code": False if no_code else code, "env-file": env_file,
        "run-as": run_as, "writable-root": writable_root or None, "secret": secret or None, "registry-secret": registry_secret,
        "progress-regex": progress_regex, "hold-on-failure": hold_on_failure, "burn-in": burn_in,
    }  # fmt: skip
    if spot_then_on_demand:
        flags["capacity"] = SPOT_THEN_ON_DEMAND
    return JobOptions(read_file(file) if file else {}, flags, file.parent if file else None)


def takes_job_options(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb whose parameter `asked` is all of `options`, for typer to see."""
    own = [parameter for parameter in inspect.signature(verb).parameters.values() if parameter.name != "asked"]
    first = [parameter for parameter in own if parameter.kind is not inspect.Parameter.KEYWORD_ONLY]
    asked = inspect.signature(options).parameters

    def call_verb(*args: Any, **kwargs: Any) -> None:
        given = {key: kwargs.pop(key) for key in asked}
        verb(*args, asked=options(**given), **kwargs)

    shown = inspect.Signature([*first, *asked.values(), *own[len(first) :]])
    call_verb.__name__, call_verb.__doc__ = verb.__name__, verb.__doc__
    call_verb.__dict__["__signature__"] = shown
    return call_verb
