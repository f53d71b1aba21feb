"""`ebb init`: a job file from a few questions."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
import yaml

from ebb.cli.exits import Exit
from ebb.cli.options import Format, Output, note, print_json
from ebb.cli.terminal import is_interactive
from ebb.client.errors import BadRequest
from ebb.client.submission.jobfile import request_of
from ebb.client.submission.program import with_code
from ebb.client.submission.request import check

FILE = Path("ebb.yaml")
USUAL = ("train.py", "main.py", "run.py")  # programs, the most likely first
NONE = "none"
T = TypeVar("T")


def init(
    *,
    file: Annotated[Path, typer.Option("-f", "--file", help="The job file to write.")] = FILE,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Take all defaults, ask nothing.")] = False,
    output: Format = Output.TEXT,
) -> None:
    """Write a job file, ebb.yaml, from a few questions.

    It asks for the program, GPUs, data and budget; `ebb submit -f ebb.yaml` then starts the job.
    """
    if file.exists():
        raise BadRequest(f"file {str(file)!r} is there already: edit it, remove it, or name another one with -f.")
    if not yes and not is_interactive():
        raise BadRequest("yes is missing: this is no terminal to ask questions on, so take all defaults with --yes.")
    folder = file.parent
    usual = find_program(folder)
    if yes and not usual:
        raise BadRequest(f"program: {folder.absolute()} holds none that is clearly it: answer the questions without --yes.")
    requirements = (folder / "requirements.txt").is_file()
    try:
        job = _defaults(folder, usual) if yes else _answers(folder, usual)
    except typer.Abort as error:
        note("\nNothing was written.")
        raise typer.Exit(Exit.INTERRUPTED) from error
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text(job, file, requirements=requirements))
    except OSError as error:
        raise BadRequest(f"file {str(file)!r} cannot be written: {error.strerror}. Name another one with -f.") from error
    command = f"ebb submit -f {file}"
    if output is Output.JSON:
        print_json({"file": str(file), "next": command})
        return
    if requirements:
        typer.echo("requirements.txt goes along, and is installed before the workers start.")
    typer.echo(f"{file} is written. Look what it would start: {command} --dry-run; start it: {command}")


def find_program(folder: Path) -> str:
    """The command that starts the folder's program; "" where none stands out."""
    scripts = sorted(path.name for path in folder.glob("*.py") if path.is_file())
    found = next((name for name in USUAL if name in scripts), scripts[0] if len(scripts) == 1 else "")
    return f"python {found}" if found else ""


def text(job: dict[str, Any], file: Path, *, requirements: bool) -> str:
    """The file: its keys are the flags of `ebb submit`."""
    code = "this folder goes along, less what .gitignore ignores" + ("; requirements.txt is installed" if requirements else "")
    comments = {
        "code": code,
        "data": "on the shared data volume; passed on as --data",
        "max-cost": "USD: stopped before it costs more",
    }
    lines = [f"# A job of Ebb: `ebb submit -f {file}`. Flags win over it; `ebb submit --help` lists them."]
    for key, value in job.items():
        line = yaml.safe_dump({key: value}, width=10_000).rstrip("\n")
        lines.append(f"{line}  # {comments[key]}" if key in comments else line)
    return "\n".join(lines) + "\n"


def _defaults(folder: Path, usual: str) -> dict[str, Any]:
    return _program(usual, folder) | {"gpus": 1}


def _answers(folder: Path, usual: str) -> dict[str, Any]:
    """Ask until each answer makes sense. Raises Abort."""
    job = _ask("Program, as you would start it here", usual or None, lambda said: _program(said, folder))
    job["gpus"] = _ask("GPUs", "1", lambda said: _number(said, int, "a whole number of GPUs, 1 or more"))
    if (data := _ask("Data folder on the shared data volume", NONE, str.strip)) != NONE:
        job["data"] = data
    if (most := _ask("The most it may cost, in USD", NONE, _budget)) is not None:
        job["max-cost"] = most
    return job


def _ask(question: str, default: str | None, read: Callable[[str], T]) -> T:
    def value(said: str) -> T:
        try:
            return read(said)
        except BadRequest as error:
            raise typer.BadParameter(str(error)) from error  # it is said, and the question comes again

    answer: T = typer.prompt(question, default=default, value_proc=value, err=True)
    return answer


def _program(said: str, folder: Path) -> dict[str, Any]:
    """The command, and the folder where its program is there and not in the image. Raises BadRequest."""
    request = request_of({"command": said}, {}, (), "init")
    check(request)
    return {"command": said, **({"code": "."} if with_code(request, [folder]).code else {})}


def _budget(said: str) -> float | None:
    return None if said == NONE else _number(said, float, "an amount of USD, more than 0")


def _number(said: str, kind: Callable[[str], Any], wanted: str) -> Any:
    try:
        value = kind(said)
    except ValueError:
        value = 0
    if not 0 < value < float("inf"):
        raise BadRequest(f"{said!r} is not {wanted}")
    return value
