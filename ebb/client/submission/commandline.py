"""A request as the command that asks for it again. Pure code.

command_of(request)                                  # ebb submit --gpus 2 -- python train.py --lr 0.1
command_of(request, "local", name="digits")          # ebb local --name digits --gpus 2 -- python train.py --lr 0.1
"""

import shlex
from collections.abc import Iterable
from dataclasses import MISSING, Field, fields

from ebb.client.submission.request import Request

_FLAG_OF = {"min_gpus": "min", "max_gpus": "max"}  # where the flag has another name than the field
# Written apart from the others; what belongs to this one start and would be wrong at the next; the job that it went on from.
_NO_FLAGS = frozenset({"name", "arguments", "capacity", "env", "user", "deadline", "resume_from"})


def command_of(request: Request, verb: str = "submit", *, name: str = "", more: Iterable[str] = ()) -> str:
    """The command; without a name, as that of a job which is there is taken. `more` are the verb's own options."""
    named = ["--name", name] if name else []
    options = [word for field in fields(request) for word in _option(field, getattr(request, field.name))]
    capacity = [f"--{request.capacity}"] if request.capacity else []
    env = [word for key, value in request.env.items() for word in ("--env", f"{key}={value}")]
    python = [] if request.arguments[:1] == ("-m",) else ["python"]
    return shlex.join(["ebb", verb, *named, *options, *capacity, *env, *more, "--", *python, *request.arguments])


def _option(field: "Field[object]", value: object) -> tuple[str, ...]:
    """A field of a request as its flag; nothing where it has its default."""
    if field.name in _NO_FLAGS or value is None or (field.default is not MISSING and value == field.default):
        return ()
    flag = f"--{_FLAG_OF.get(field.name, field.name).replace('_', '-')}"
    return (flag, f"{value:g}" if isinstance(value, float) else str(value))
