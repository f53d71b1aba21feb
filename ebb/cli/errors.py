"""Every expected error as an exit code and one sentence: those of ebb.client, and mistakes in the command line.

The sentence on a command line names the field, its value, what is allowed, and where to read more. It is made of typer's own
errors, whose classes are private; typer's version is pinned, and test_misuse.py holds every sentence.
"""

import re
from difflib import get_close_matches
from typing import Any

from typer._click.exceptions import BadParameter, MissingParameter, NoArgsIsHelpError, NoSuchOption, UsageError

from ebb.api.platform import PlatformError
from ebb.cli.exits import Exit
from ebb.client.errors import BadRequest, ClientError, Missing, NoPlatform, TimedOut
from ebb.client.jobs.view import FINISHED, JobView
from ebb.kube import Denied, KubeconfigError, KubeError, NotFound, Unreachable

EXPECTED = (ClientError, PlatformError, KubeError)
"""All errors that end a verb with a sentence; anything else is a bug and shows its traceback."""


def classify(error: Exception) -> tuple[Exit, str]:
    """The exit code and the sentence for one of EXPECTED."""
    if isinstance(error, Denied):
        return Exit.FAILED, f"not allowed: {error}. Ask the platform's owner, or check which user your kubeconfig names."
    if isinstance(error, KubeError) and error.busy:
        when = f" in {error.retry_seconds:g} s" if error.retry_seconds else ""
        return Exit.NO_PLATFORM, f"the API server cannot answer now: {error}. Try again{when}."
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), Exit.FAILED), str(error)


_CODES = (
    (BadRequest, Exit.USAGE),
    ((NoPlatform, PlatformError, KubeconfigError, Unreachable), Exit.NO_PLATFORM),
    ((Missing, NotFound), Exit.NOT_FOUND),
    (TimedOut, Exit.TIMED_OUT),
)


def exit_code_of(job: JobView) -> Exit:
    """The exit code of a verb that waited for a job's end."""
    return Exit.OK if job.state == FINISHED else Exit.JOB_FAILED


_QUOTED = re.compile(r"'([^']*)'")
NUMBERS = {
    "int_parsing": ("a whole number", "2"),
    "int_from_float": ("a whole number", "2"),
    "float_parsing": ("a number", "1.5"),
}


def is_misuse(error: BaseException) -> bool:
    """Return whether it is a mistake in the command line; a line with no words at all is none, and gets the help."""
    return isinstance(error, UsageError) and not isinstance(error, NoArgsIsHelpError)


def usage_sentence(error: Any) -> str:
    """One of those for which `is_misuse` is true."""
    what = " ".join(_describe(error).split()).rstrip(".")
    path = error.ctx.command_path if error.ctx is not None else "ebb"
    return f"{what}{'' if what.endswith('?') else '.'} `{path} -h` shows how."


def _describe(error: Any) -> str:
    if isinstance(error, NoSuchOption):
        return (
            f"{error.option_name} is not an option here{_meant(error.option_name, error.possibilities or _known_options(error))}"
        )
    if isinstance(error, MissingParameter):
        return f"{_field(error.param)} is missing: {_usage(error)}"
    if isinstance(error, BadParameter):
        return _bad(error)
    if match := re.match(r"No such command '(.*)'", error.message):
        return f"{match[1]!r} is not a command{_meant(match[1], error.ctx.command.list_commands(error.ctx))}"
    if match := re.match(r"Got unexpected extra argument\(s\) \((.*)\)", error.message):
        return f"{match[1]!r} is one argument too many: {_usage(error)}"
    return str(error.format_message())


def _bad(error: Any) -> str:
    """A value that cannot be."""
    field, cause = _field(error.param), error.__cause__
    if cause is None or not hasattr(cause, "errors"):
        return f"{field}: {error.message}"
    found = cause.errors()[0]
    kind, value, limits = found["type"], found["input"], found.get("ctx") or {}
    if kind in NUMBERS:
        name, example = NUMBERS[kind]
        return f"{field} {value!r} is not {name}: use for example {example}"
    if "ge" in limits:
        return f"{field} {value} is less than {limits['ge']}: use {limits['ge']} or more"
    if "le" in limits:
        return f"{field} {value} is more than {limits['le']}: use {limits['le']} or less"
    if " is not one of " in found["msg"]:
        return f"{field} {value!r} is unknown: use {_either(_QUOTED.findall(found['msg'])[1:])}"
    return f"{field} {value!r}: {found['msg']}"


def _usage(error: Any) -> str:
    """ebb status [OPTIONS] JOB."""
    return str(error.ctx.get_usage()).removeprefix("Usage: ").translate({ord(brace): None for brace in "{}"})


def _field(param: Any) -> str:
    """As a user writes it: worker of --worker, JOB of an argument."""
    if param is None:
        return "the value"
    if param.param_type_name == "argument":
        return str(param.metavar or param.name).strip("[]{}").removeprefix("-- ").upper()
    return str(max(param.opts, key=len)).lstrip("-")


def _known_options(error: Any) -> list[str]:
    return [name for param in error.ctx.command.get_params(error.ctx) for name in param.opts] if error.ctx else []


def _meant(word: str, known: Any) -> str:
    close = get_close_matches(word, list(known), n=2, cutoff=0.6)
    return f": did you mean {_either(close)}?" if close else ""


def _either(names: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
