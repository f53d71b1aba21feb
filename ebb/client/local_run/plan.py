"""A request -> the command that trains on this machine: a Python with torch and `ebb`, and a pod's launcher on loopback.

Options that only a platform has (GPU type, zone, price, image ...) are ignored, and listed as such.
"""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebb.api.buckets import is_url
from ebb.api.contract import ENV_JOB, ENV_OUTPUT_DIR, ENV_PROGRESS_REGEX, WORKER_CONTAINER
from ebb.client.errors import BadRequest
from ebb.client.jobs.view import gpus_per_worker, worker_spec
from ebb.client.secrets.uses import uses_of
from ebb.client.submission.own_image import is_ours
from ebb.client.submission.request import Request, check

CHECKOUT = Path(__file__).parents[3]  # or the folder into which Ebb was installed
_LOOK = "import importlib.util as u; print(*(m for m in ('torch', 'ebb') if u.find_spec(m)))"
_LOOK_SECONDS = 30.0  # a Python on a network file system, the first time


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """A Python that can train. `path` is what PYTHONPATH needs for it to find ebb, "" for nothing."""

    python: str
    path: str = ""


def find_python(given: str | None, *, others: Iterable[str] | None = None) -> Interpreter:
    """The one that is given, else this one, else the shell's own. Raises BadRequest if it has no torch."""
    if given is not None:
        return _usable(_program(given), _modules(_program(given)), given)
    tried = dict.fromkeys([sys.executable, *(_on_path() if others is None else others)])
    for python in tried:
        if "torch" in (found := _modules(python)):
            return _usable(python, found, python)
    raise BadRequest(
        f"python {' and '.join(tried)} cannot import torch, and training needs it: install it there with "
        f"`{sys.executable} -m pip install torch torchvision`, or name a Python that has it with --python."
    )


def _usable(python: str, found: set[str], given: str) -> Interpreter:
    if "torch" not in found:
        raise BadRequest(
            f"python {given!r} cannot import torch, and training needs it: install it with "
            f"`{python} -m pip install torch torchvision`, or name another Python with --python."
        )
    if "ebb" in found:
        return Interpreter(python=python)
    if not (CHECKOUT / "ebb" / "elastic" / "launch").is_dir():
        raise BadRequest(f"python {given!r} cannot import Ebb's package ebb: install Ebb into it as well.")
    return Interpreter(python=python, path=str(CHECKOUT))


def _program(given: str) -> str:
    found = shutil.which(given)
    if not found:
        raise BadRequest(f"python {given!r} is not a program: give a path, as in --python ~/venv/bin/python.")
    return found


def _on_path() -> list[str]:
    return [found for name in ("python", "python3") if (found := shutil.which(name))]


def _modules(python: str) -> set[str]:
    """Return which of torch and ebb it finds by itself, whatever lies in the current folder; it imports neither."""
    try:
        done = subprocess.run(
            [python, "-c", _LOOK],
            capture_output=True,
            text=True,
            timeout=_LOOK_SECONDS,
            check=False,
            cwd=Path(python).anchor,
        )
    except (OSError, subprocess.TimeoutExpired):
        return set()
    return set(done.stdout.split())


OUTPUT_FOLDER = "ebb-output"
LAUNCHER = "ebb.elastic.launch"
_OF_PLATFORMS = {
    "gpu": "gpu", "zone": "zone", "capacity": "spot", "image": "image", "shm": "shm", "min_gpus": "min", "max_gpus": "max",
    "priority": "priority", "registry_secret": "registry-secret", "max_cost": "max-cost", "deadline": "deadline",
    "queue": "queue", "run_as": "run-as", "writable_root": "writable-root",
    "hold_on_failure": "hold-on-failure", "burn_in": "burn-in",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LocalRun:
    """A run on this machine. `environment` is added to that of this process; `left_aside` are options without meaning here."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str  # where the program starts
    output: str  # checkpoints, metrics, result
    workers: int
    left_aside: tuple[str, ...]

    def __str__(self) -> str:
        """As a line for a shell."""
        settings = [f"{key}={shlex.quote(value)}" for key, value in self.environment.items()]
        return " ".join([*settings, shlex.join(self.command)])


@dataclass(frozen=True, kw_only=True)
class Here:
    """This machine. `output_root` is $EBB_OUTPUT_DIR, None where it is not set."""

    folder: Path
    cores: int
    output_root: str | None = None
    variables: frozenset[str] = frozenset()  # that are set in this shell: their names
    python_path: str = ""


def plan(request: Request, interpreter: Interpreter, here: Here, *, workers: int | None = None) -> LocalRun:
    """`workers` processes; without a number as many as GPUs were asked for, and no more than cores. Raises BadRequest."""
    check(request)
    if workers is not None and workers < 1:
        raise BadRequest(f"workers {workers} is too few: at least 1 process trains.")
    count = workers or min(request.gpus, here.cores)
    folder = here.folder / (request.code or "")
    if not folder.is_dir():
        raise BadRequest(f"code {request.code!r} is not a folder: name the one that holds your program, as in --code .")
    _check_hides_nothing(folder)
    _check_secrets(request, here)
    output = Path(here.output_root or here.folder / OUTPUT_FOLDER / request.name).absolute()
    own = request.env.get("PYTHONPATH", "")
    path = ":".join(filter(None, (interpreter.path, own, here.python_path)))  # one of the user's own would hide the launcher
    flags = ["--standalone", f"--nproc-per-node={count}"]
    return LocalRun(
        name=request.name,
        command=(interpreter.python, "-m", LAUNCHER, *flags, *request.arguments, *_data(request.data, here)),
        environment={
            ENV_JOB: request.name,
            ENV_OUTPUT_DIR: str(output),
            **request.env,
            **({ENV_PROGRESS_REGEX: request.progress_regex} if request.progress_regex else {}),
            **({"PYTHONPATH": path} if interpreter.path or own else {}),
        },
        folder=str(folder.absolute()),
        output=str(output),
        workers=count,
        left_aside=tuple(flag for field, flag in _OF_PLATFORMS.items() if getattr(request, field) is not None),
    )


def request_of_elastic_job(file: Mapping[str, Any]) -> Request:
    """Return what an ElasticJob's worker container runs. Raises BadRequest for one that does not start the launcher."""
    worker = worker_spec(dict(file))
    containers = ((worker.get("template") or {}).get("spec") or {}).get("containers") or []
    container = next((item for item in containers if item.get("name") == WORKER_CONTAINER), containers[0] if containers else {})
    words = container.get("command") or []
    if (words and not is_ours(words)) or not container.get("args"):
        raise BadRequest(
            f"name {file['metadata']['name']!r}: its container starts a program of its own, not the image's launcher: "
            "give `args` without `command`, such as [-m, trainer], or run it by hand."
        )
    processes = int(worker.get("replicas") or 1) * (file["spec"].get("nprocPerNode") or gpus_per_worker(dict(file)) or 1)
    env = {item["name"]: str(item["value"]) for item in container.get("env") or [] if "value" in item}
    uses = uses_of(((worker.get("template") or {}).get("spec")) or {})
    return Request(
        name=file["metadata"]["name"],
        arguments=tuple(map(str, container["args"])),
        gpus=processes,
        env={key: value for key, value in env.items() if key != "HOME" and not key.startswith("EBB_")},  # are for pods
        secrets={use.variable or use.path: use.name for use in uses if use.variable or use.path},
        progress_regex=env.get(ENV_PROGRESS_REGEX),
    )


def _check_secrets(request: Request, here: Here) -> None:
    """Refuse a secret whose value is not here: variables are those of this shell, files are where workers would see them. The
    platform gives no value away, and the program gets what is here without it being in a command. Raises BadRequest."""
    for place, name in request.secrets.items():
        if place.startswith("/") and not Path(place).is_file():
            raise BadRequest(
                f"secret {name!r}: {place} is not on this machine. Here a secret's file is looked for under the path that "
                "workers see: put it there, or give it as a variable."
            )
        if not place.startswith("/") and place not in here.variables:
            raise BadRequest(
                f"secret {name!r}: {place} is not set in this shell, and here the value comes from there, as no platform gives "
                f"it away. Set it without leaving it in the history: read -rs {place} && export {place}"
            )


def _check_hides_nothing(folder: Path) -> None:
    """Refuse a folder with an `ebb` of its own: `python -m` would start that one. Raises BadRequest."""
    own = [path for path in (folder / "ebb.py", folder / "ebb") if path.exists() and not (path / "elastic").is_dir()]
    if own:
        raise BadRequest(f"code: {own[0]} hides Ebb's package of that name, which has the launcher: give yours another name.")


def _data(data: str | None, here: Here) -> tuple[str, ...]:
    if data is None:
        return ()
    if is_url(data):
        raise BadRequest(f"data {data!r} is a bucket, which `ebb local` does not copy: give a folder of this machine.")
    found = here.folder / data
    if not found.exists():
        raise BadRequest(f"data {data!r} is not on this machine: give a folder that is, as in --data ./digits.")
    return ("--data", str(found))
