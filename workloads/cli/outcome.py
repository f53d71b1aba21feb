"""How `ebb` ends: the exit codes, and which of them every error becomes, with its sentence.

CliError                 something that the user can put right; the message says how
├── NoPlatform    3      no kubeconfig, no answer, or no stack there
├── Missing       4      no job of that name
└── TimedOut      6      `ebb wait --timeout` was over first
"""

from enum import IntEnum

from workloads.cli.request import BadRequest
from workloads.kube import ConfigError, Denied, KubeError, NotFound, Unreachable
from workloads.platform import PlatformError


class Exit(IntEnum):
    """What the shell gets. Scripts may rely on these."""

    OK = 0
    FAILED = 1  # the platform refused, or something unexpected happened
    USAGE = 2  # the command line or the job file is wrong; nothing was sent
    NO_PLATFORM = 3
    NOT_FOUND = 4
    JOB_FAILED = 5  # the verb did its work, the job that it waited for failed
    TIMED_OUT = 6
    INTERRUPTED = 130  # Ctrl-C; jobs go on


MEANINGS = {
    Exit.OK: "done",
    Exit.FAILED: "the platform refused",
    Exit.USAGE: "the command or the job file is wrong; nothing was sent",
    Exit.NO_PLATFORM: "no kubeconfig, no answer, or no Ebb stack there",
    Exit.NOT_FOUND: "no job of that name",
    Exit.JOB_FAILED: "the job that was waited for failed",
    Exit.TIMED_OUT: "the time to wait was over",
    Exit.INTERRUPTED: "Ctrl-C; the jobs go on",
}


class CliError(Exception):
    """A sentence for the user."""

    code = Exit.FAILED


class NoPlatform(CliError):
    code = Exit.NO_PLATFORM


class Missing(CliError):
    code = Exit.NOT_FOUND


class TimedOut(CliError):
    code = Exit.TIMED_OUT


EXPECTED = (CliError, BadRequest, PlatformError, KubeError)
"""All errors that end a verb with a sentence; anything else is a bug and shows its traceback."""


def outcome(error: Exception) -> tuple[Exit, str]:
    """The exit code and the sentence for one of EXPECTED."""
    if isinstance(error, CliError):
        return error.code, str(error)
    if isinstance(error, Denied):
        return Exit.FAILED, f"not allowed: {error}. Ask the platform's owner, or check which user your kubeconfig names."
    if isinstance(error, KubeError) and (error.status == 429 or error.status >= 500):
        return Exit.NO_PLATFORM, f"the API server cannot answer now: {error}. Try again."
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), Exit.FAILED), str(error)


_CODES = (
    (BadRequest, Exit.USAGE),
    ((PlatformError, ConfigError, Unreachable), Exit.NO_PLATFORM),
    (NotFound, Exit.NOT_FOUND),
)
