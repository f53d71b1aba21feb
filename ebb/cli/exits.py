"""The exit codes of `ebb`. Imports nothing else: `ebb --help` shows them."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes. Scripts may rely on these."""

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
    Exit.FAILED: "the platform refused, or `check` found a problem",
    Exit.USAGE: "the command or the job file is wrong; nothing was sent",
    Exit.NO_PLATFORM: "no kubeconfig, no answer, or no Ebb stack there",
    Exit.NOT_FOUND: "no job of that name",
    Exit.JOB_FAILED: "the job you waited for failed",
    Exit.TIMED_OUT: "the waiting time ran out",
    Exit.INTERRUPTED: "Ctrl-C; the jobs continue",
}
