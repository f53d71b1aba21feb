"""A user's request: the words of `ebb submit` or of a job file, checked as far as they can be without a platform.

    check(request)                      # or a BadRequest: one sentence with field, value, what is allowed and the fix
    command_of(request)                 # ebb submit --gpus 2 -- python train.py --lr 0.1

fit.py sets it on a platform's machines, manifest.py makes the ElasticJob of both.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import PurePosixPath

from ebb.api.parts import LEAST_BURN_IN_SECONDS, LEAST_HOLD_SECONDS, MOST_BURN_IN_SECONDS, MOST_HOLD_SECONDS
from ebb.client.errors import BadRequest
from ebb.client.secrets.uses import check_uses, secret_name, words_of
from ebb.client.submission.own_image import check_run_as

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")  # DNS-1035: the workers' Service and host names carry it
_NAME_LENGTH = 63
PRIORITIES = {"job": "ebb-job", "elastic": "ebb-elastic"}
"""--priority: the PriorityClasses that jobs may have (manifests/priorities.yaml), by their short names."""
SHELLS = ("bash", "sh")
_QUEUE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")  # a LocalQueue's name, as far as a label can hold it
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class Request:
    """The user's words on the command line or in a job file. None: not given."""

    name: str
    arguments: tuple[str, ...]  # of the launcher: its flags, then a script or `-m module`, then the program's own
    gpus: int = 1
    min_gpus: int | None = None
    max_gpus: int | None = None
    gpu: str | None = None
    zone: str | None = None
    capacity: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)  # a variable, or the path of a file -> the secret's name
    registry_secret: str | None = None  # the login to the registry of the image
    image: str | None = None
    interpreter: str | None = None  # of that image, where the command names it more exactly than `python`
    run_as: str | None = None  # a user's number, root, or image: the one that the image names
    writable_root: bool | None = None  # the root file system of the workers; what they write there is lost with them
    shm: str | None = None
    data: str | None = None
    code: str | None = None  # the folder that travels with the job; "": none does, whatever the program is
    priority: str | None = None
    queue: str | None = None  # of Kueue, which then says when the job may have machines
    max_cost: float | None = None  # USD
    deadline: str | None = None  # RFC 3339
    hold_on_failure: int | None = None  # seconds for which the machine of a program that failed is held
    burn_in: int | None = None  # seconds for which each machine is tested before it begins work
    user: str = ""  # who says to submit it
    progress_regex: str | None = None  # by which rank 0's log lines say how far the program is
    resume_from: str | None = None  # another job's folder on the output volume, whose newest checkpoint it starts from


def check(request: Request) -> None:
    """Raises BadRequest for what no platform could run."""
    check_name(request.name)
    _check_program(request)
    _check_env(request.env)
    check_uses(request.secrets, request.env)
    if request.registry_secret is not None:
        secret_name(request.registry_secret)
    check_run_as(request.run_as)
    _check_counts(request)
    _check_limits(request)
    _check_progress_regex(request.progress_regex)


def launcher_arguments(words: Iterable[str]) -> tuple[str, ...]:
    """Return what follows `--`, as the launcher's arguments; `python train.py` and `torchrun train.py` are taken as typed, and so
    are `accelerate launch train.py`, `./run.sh` and `bash run.sh`.

    Raises BadRequest for what no launcher can start.
    """
    arguments = list(words)
    if arguments[:2] == ["accelerate", "launch"]:
        return _without_accelerate(arguments[2:])
    if arguments and arguments[0].endswith(".sh"):
        script = arguments[0] if "/" in arguments[0] else f"./{arguments[0]}"
        return ("--no-python", script, *arguments[1:])
    if arguments and arguments[0] in SHELLS:
        if len(arguments) == 1 or arguments[1].startswith("-"):
            raise BadRequest(f"program {arguments[0]!r} has no script: name one, as in {arguments[0]} run.sh.")
        return ("--no-python", *arguments)
    if arguments and re.fullmatch(r"(python[\d.]*|torchrun)", PurePosixPath(arguments[0]).name):
        arguments = arguments[1:]
        if arguments[:1] == ["-u"]:  # output is never buffered: the pod sets PYTHONUNBUFFERED
            arguments = arguments[1:]
        if arguments[:1] == ["-c"]:
            raise BadRequest("program '-c' is text on the command line, and every process needs a file: write it to a script.")
    return tuple(arguments)


def _without_accelerate(arguments: list[str]) -> tuple[str, ...]:
    """Return the program that `accelerate launch` would start: Accelerate finds its processes by torchrun's variables too."""
    if arguments and arguments[0].startswith("-") and arguments[0] not in ("-m", "--module"):
        raise BadRequest(
            f"program: accelerate's {arguments[0]!r} has no meaning here, where Ebb starts the processes: leave it out, and say "
            "it in the script or by a variable, as in --env ACCELERATE_MIXED_PRECISION=bf16."
        )
    return tuple(arguments)


def check_name(name: str) -> None:
    """Raises BadRequest unless `name` can name a job."""
    if not _NAME.fullmatch(name):
        raise BadRequest(
            f"name {name!r} is not usable: use lower-case letters, digits and '-'; start with a letter, do not end with '-'."
        )
    check_worker_name(name, 1)


def check_worker_name(name: str, max_workers: int) -> None:
    """Raises BadRequest unless the name of the last of so many workers is short enough."""
    longest = f"{name}-worker-{max_workers - 1}"
    if len(longest) > _NAME_LENGTH:
        raise BadRequest(
            f"name {name!r} is too long: its last worker would be named {longest!r}, {len(longest)} characters of at most "
            f"{_NAME_LENGTH}. Shorten it by {len(longest) - _NAME_LENGTH}."
        )


def _check_program(request: Request) -> None:
    if not request.arguments:
        raise BadRequest("nothing to run: give the program after --, as in `-- python train.py --lr 0.1` or `-- -m trainer`.")


def _check_env(env: Mapping[str, str]) -> None:
    for key in env:
        if not _VARIABLE.fullmatch(key):
            raise BadRequest(f"env {key!r} is not a variable's name: use letters, digits and '_', as in --env LR=0.1.")
        if key.startswith("EBB_"):
            raise BadRequest(f"env {key!r} is taken: the platform sets the names that start with EBB_. Choose another name.")


def _check_counts(request: Request) -> None:
    for label, value in (("gpus", request.gpus), ("min", request.min_gpus), ("max", request.max_gpus)):
        if value is not None and value < 1:
            raise BadRequest(f"{label} {value} is too few: a job has at least 1 GPU.")
    low, high = request.min_gpus, request.max_gpus
    if low is not None and high is not None and low > high:
        raise BadRequest(f"min {low} is more than max {high}: lower --min or raise --max.")
    if low is not None and low > request.gpus:
        raise BadRequest(f"min {low} is more than gpus {request.gpus}: lower --min or raise --gpus.")
    if high is not None and high < request.gpus:
        raise BadRequest(f"max {high} is less than gpus {request.gpus}: raise --max or lower --gpus.")


def _check_limits(request: Request) -> None:
    if request.priority not in (None, *PRIORITIES):
        raise BadRequest(
            f"priority {request.priority!r} is unknown: use job (the default), or elastic (it yields to all others)."
        )
    if request.queue is not None and not (_QUEUE.fullmatch(request.queue) and len(request.queue) <= _NAME_LENGTH):
        raise BadRequest(
            f"queue {request.queue!r} is no name of a queue: give that of a LocalQueue of Kueue, in lower-case letters, digits "
            "and '-', as `kubectl get localqueues` shows it; without --queue the platform's own queue decides."
        )
    if request.max_cost is not None and not request.max_cost > 0:
        raise BadRequest(f"max-cost {request.max_cost:g} is not more than 0: give the most that the job may cost, in USD.")
    held = request.hold_on_failure
    if held is not None and not LEAST_HOLD_SECONDS <= held <= MOST_HOLD_SECONDS:
        raise BadRequest(
            f"hold-on-failure {held} s is not from {LEAST_HOLD_SECONDS} s to {MOST_HOLD_SECONDS // 3600} h: a machine that is "
            "held costs as one that trains. Give for example 30m."
        )
    tested = request.burn_in
    if tested is not None and not LEAST_BURN_IN_SECONDS <= tested <= MOST_BURN_IN_SECONDS:
        raise BadRequest(
            f"burn-in {tested} s is not from {LEAST_BURN_IN_SECONDS} s to {MOST_BURN_IN_SECONDS // 3600} h: each machine is "
            "tested for so long before it begins work, and costs as one that trains. Give for example 60s."
        )


def _check_progress_regex(text: str | None) -> None:
    if text is None:
        return
    usable = r"as in 'step (?P<step>\d+).*loss (?P<loss>[\d.]+)'"
    try:
        groups = re.compile(text).groupindex
    except re.error as error:
        raise BadRequest(f"progress-regex {text!r} is no regular expression of Python: {error}. Mend it, {usable}.") from error
    if "step" not in groups:
        raise BadRequest(f"progress-regex {text!r} has no group named step: put the number of steps done into one, {usable}.")


_FLAG_OF = {"min_gpus": "min", "max_gpus": "max"}  # where the flag has another name than the field
# Written apart from the others; what belongs to this one start and would be wrong at the next; the job that it went on from.
_NO_FLAGS = frozenset({"name", "arguments", "capacity", "env", "secrets", "user", "deadline", "resume_from", "interpreter"})


def command_of(request: Request, verb: str = "submit", *, name: str = "", more: Iterable[str] = ()) -> str:
    """The command; without a name, as that of a job which is there is taken. `more` are the verb's own options."""
    named = ["--name", name] if name else []
    options = [word for field in fields(request) for word in _option(field, getattr(request, field.name))]
    capacity = [f"--{request.capacity}"] if request.capacity else []
    env = [word for key, value in request.env.items() for word in ("--env", f"{key}={value}")]
    secrets = [word for text in words_of(request.secrets) for word in ("--secret", text)]
    usual = [] if request.arguments[:1] in (("-m",), ("--no-python",)) else ["python"]
    python = [request.interpreter] if request.interpreter else usual
    return shlex.join(["ebb", verb, *named, *options, *capacity, *env, *secrets, *more, "--", *python, *request.arguments])


def _option(field: "Field[object]", value: object) -> tuple[str, ...]:
    """A field of a request as its flag; nothing where it has its default."""
    if field.name == "code" and value == "":
        return ("--no-code",)
    if field.name in _NO_FLAGS or value is None or value is False or (field.default is not MISSING and value == field.default):
        return ()
    flag = f"--{_FLAG_OF.get(field.name, field.name).replace('_', '-')}"
    if value is True:
        return (flag,)
    return (flag, f"{value:g}" if isinstance(value, float) else str(value))
