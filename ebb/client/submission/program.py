"""The program of a command, and the folder that travels with the job because the program is in it.

    find_program(("--max-restarts=1", "src/train.py", "--lr", "0.1"))       # Program("src/train.py")
    request = with_code(request, (Path(),))                                 # code ".", where src/train.py is here

A program that the workers would not find is a BadRequest: nothing is created for it. Absolute paths, modules that are not here
and what Ebb's image has are taken to be in the image.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from ebb.client.errors import BadRequest
from ebb.client.staging.code import listed
from ebb.client.submission.request import SHELLS, Request

# torchrun's flags that take a value, and the launcher's own one; the word after any other flag may be the program.
WITH_VALUE = frozenset(
    {
        *("nnodes", "nproc_per_node", "node_rank", "local_addr", "master_addr", "master_port", "role", "max_restarts"),
        *("rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "monitor_interval", "start_method", "event_log_handler"),
        *("log_dir", "r", "redirects", "t", "tee", "local_ranks_filter", "logs_specs", "numa_binding", "signals_to_handle"),
        *("duplicate_stdout_filters", "duplicate_stderr_filters", "shutdown_timeout", "notices"),
    }
)
_OF_THE_IMAGE = frozenset({"ebb", "trainer"})  # its own packages: `-m trainer` starts Ebb's, whatever the job's code is called


@dataclass(frozen=True)
class Program:
    """A file as it was typed, or a module's name. `command`: it is run as it is, and not by Python."""

    name: str
    module: bool = False
    command: bool = False


def find_program(arguments: Iterable[str]) -> Program | None:
    """Return the program among the launcher's arguments: the first word that is no flag and no flag's value; a
    shell's script."""
    flags, words = set[str](), iter(arguments)
    for word in words:
        if word in SHELLS and "no_python" in flags:
            return Program(next(words, word))
        if not word.startswith("-"):
            return Program(word, module=bool(flags & {"m", "module"}), command="no_python" in flags)
        flag, equals, _ = word.lstrip("-").replace("-", "_").partition("=")
        flags.add(flag)
        if flag in WITH_VALUE and not equals:
            next(words, None)
    return None


def with_code(request: Request, folders: Sequence[Path]) -> Request:
    """Return the request with the folder that its program is in, the first of `folders` that has it, where none is named.

    Raises BadRequest for a program that would not be found where the workers start.
    """
    program = find_program(request.arguments)
    if program is None or request.code == "":
        return request
    own = [Path(request.code)] if request.code is not None else list(folders)
    if request.code is not None and not own[0].is_dir():
        return request  # packing it says so
    if PurePosixPath(program.name).is_absolute():
        _check_elsewhere(program, own)
        return request
    if program.module and program.name.partition(".")[0] in _OF_THE_IMAGE:
        return request
    for folder in own:
        if (found := _find(folder, program)) is not None:
            if request.code is None:
                _check_is_meant(folder, program)
            _check_travels(folder, program, found)
            return replace(request, code=str(folder))
    if program.module or _is_of_the_image(request, program):
        return request
    places = " or in ".join(dict.fromkeys(str(folder.absolute()) for folder in own))
    fix = "name it as it is there, or another folder with --code DIR" if request.code else "name its folder with --code DIR"
    raise BadRequest(f"program {program.name!r} is not in {places}: {fix}, or say --no-code if the image has it.")


def _find(folder: Path, program: Program) -> Path | None:
    """Return the program's path in the folder. Of a package that is here, a module that is not is a BadRequest."""
    if not program.module:
        path = folder / program.name
        if program.command and "/" not in program.name:
            return None  # looked for on the PATH alone
        return path if path.is_file() or (path / "__main__.py").is_file() else None
    parts = program.name.split(".")
    path = folder.joinpath(*parts)
    for found in (path.with_name(f"{path.name}.py"), path):
        if found.exists():
            return found
    if (folder / parts[0] / "__init__.py").is_file():
        raise BadRequest(f"program '-m {program.name}' is not in {folder.absolute() / parts[0]}: look at how it is spelt.")
    return None


def _is_of_the_image(request: Request, program: Program) -> bool:
    """Return whether Ebb's own image has it where its workers start; with code of its own a job's workers start there."""
    if request.code is not None:
        return False
    if program.command and "/" not in program.name:
        return True  # a command on the PATH
    return request.image is None and PurePosixPath(program.name).parts[0] == "trainer"


def _check_elsewhere(program: Program, folders: Sequence[Path]) -> None:
    """Refuse an absolute path in a folder of this machine. Raises BadRequest."""
    path = Path(program.name)
    inside = next((folder for folder in folders if path.is_file() and path.is_relative_to(folder.absolute())), None)
    if inside is not None:
        raise BadRequest(
            f"program {program.name!r} is a path on this machine, and workers have its folder elsewhere: name it as "
            f"{path.relative_to(inside.absolute())}, or say --no-code if the workers have that very path."
        )


def _check_is_meant(folder: Path, program: Program) -> None:
    """Refuse to send a home folder, keys and all, unless somebody says so. Raises BadRequest."""
    root = folder.resolve()
    if root in (Path.home().resolve(), Path(root.anchor)):
        raise BadRequest(
            f"program {program.name!r} is in {root}, and all of that would go with the job, keys and settings too: move the "
            "program to a folder of its own, or say that this is meant with --code ."
        )


def _check_travels(folder: Path, program: Program, found: Path) -> None:
    """Refuse what is here and would stay here. Raises BadRequest."""
    root = folder.resolve()
    place = Path(os.path.realpath(found))
    if not place.is_relative_to(root) or (not program.module and os.path.normpath(program.name).split("/")[0] == ".."):
        raise BadRequest(
            f"program {program.name!r} leads out of {root}, the folder that would go with the job: name a folder that holds it "
            "with --code DIR, and the program from there."
        )
    name = place.relative_to(root).as_posix()
    if not any(entry.name == name or entry.name.startswith(f"{name}/") for entry in listed(folder)):
        raise BadRequest(
            f"program {program.name!r} would stay behind: .gitignore leaves it out of what goes with the job from {root}. Take "
            "it out of .gitignore."
        )
    if program.command and not os.access(place, os.X_OK):
        raise BadRequest(f"program {program.name!r} may not be run: `chmod +x {program.name}` allows it.")
