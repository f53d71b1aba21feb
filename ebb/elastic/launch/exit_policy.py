"""The exit policy of workers: the membership changed, a signal killed one, the GPU is at fault, or the program. Pure.

    failures = [Failure(code=1, sentence="RuntimeError: Connection closed by peer")]
    may_be_peer_loss(failures, knows_codes=False)     # True: ask the membership whether a peer is gone
    policy.apply(failures, peer_lost=True)             # returns: meet the others again; or raises ProgramFailedError

After a fault that looks like the GPU's the machine's GPUs are tested (hardware_check.py): gpu_fault is what the test has found,
"" if they pass, None if there was no test. A machine that fails it leaves. One that passes it starts its workers again: a launch
failure, which a program can cause as well, then counts as a crash in C does, and so ends the job when it comes again and again;
of what only the hardware can cause (ECC, a GPU off the bus) the second one makes the machine leave.

A program of ours says it by its exit code (ebb/elastic/contract.py). Any other program fails with 1 both when it is wrong and
when a peer of its collective is gone; its exception shows which, and where there is none, or it speaks of a connection, the
membership does.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence

from ebb.compat import dataclass
from ebb.elastic.contract import (
    EXIT_FINISHED,
    EXIT_HARDWARE,
    EXIT_NO_PROGRAM,
    EXIT_PEER_LOST,
    EXIT_PROGRAM_FAILED,
    EXIT_RECLAIMED,
)
from ebb.elastic.faults import Fault, known_fault, may_be_programs
from ebb.elastic.launch.restart_rules import RestartRules

KILLED_LIMIT = 3  # workers that a signal killed (out of memory, a crash in C): chance, or a bug
# Faults that only hardware can cause, of a GPU that then passes a test. The driver recovers from many memory errors by itself
# (rows are remapped: leptonai/gpud#108); a GPU that needs a reset (docs.nvidia.com/health-validation: Xid 48) fails the test.
# DLRover and NVIDIA's resiliency extension, too, check a machine after a failure and start workers there again if it is well.
# A second fault within a launcher's life is no chance any more.
PASSED_LIMIT = 1

_MEMBERSHIP = {EXIT_RECLAIMED, EXIT_PEER_LOST}
# What is also said when the other end is gone, and for other reasons: then nobody is found to be lost.
_MAY_BE_A_PEER = re.compile(r"DistError|connection (closed|reset|refused|aborted)|broken pipe|timed? ?out", re.IGNORECASE)
_LONGEST_SENTENCE = 300


class ProgramFailedError(Exception):
    """A worker failed by itself; `code` is what the launcher ends with."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class HardwareFailedError(Exception):
    """This machine's GPU is at fault, and no other one: it leaves the job, which goes on without it."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The end of a worker. `code` is negative for a signal; `sentence` is its exception as far as torch's error file has it, with
    all its lines: NCCL's first one does not say what happened."""

    code: int
    sentence: str = ""

    @property
    def is_membership(self) -> bool:
        return self.code in _MEMBERSHIP

    @property
    def is_program(self) -> bool:
        """It says by itself that the program is wrong."""
        if self.code <= 0 or not self.sentence:
            return False
        kind = known_fault(self.sentence)
        return kind is not Fault.PEER and (kind is not None or not _MAY_BE_A_PEER.search(self.sentence))

    @property
    def is_hardware(self) -> bool:
        """It says that this machine's GPU is at fault."""
        return self.code == EXIT_HARDWARE or (self.code > 0 and known_fault(self.sentence) is Fault.HARDWARE)

    @property
    def is_abort(self) -> bool:
        """NCCL's watchdog ends survivors of a loss so, and asks no program; libraries in C do it too."""
        return self.code == -signal.SIGABRT

    @property
    def is_own(self) -> bool:
        """It did not come of another rank's end: killed, or wrong by its own word."""
        return self.is_program or self.is_hardware or (self.code < 0 and not self.is_abort and self.code != -signal.SIGTERM)


def may_be_peer_loss(failures: Sequence[Failure], *, knows_codes: bool) -> bool:
    """True if these may be the work of a peer that is gone. With `knows_codes` the program says so by its exit code."""
    if any(failure.is_own for failure in failures):
        return False
    if any(failure.is_abort for failure in failures):
        return True
    if knows_codes or _killed(failures):
        return False
    return not all(failure.is_membership for failure in failures)


class ExitPolicy:
    """It counts failures, so it is one for the life of a launcher."""

    def __init__(self, *, max_restarts: int, say: Callable[[str], None], rules: RestartRules | None = None) -> None:
        self._failures_left = max_restarts
        self._rules = rules or RestartRules(())
        self._kills_left = KILLED_LIMIT
        self._passed_left = PASSED_LIMIT
        self._say = say

    def apply(self, failures: Sequence[Failure], *, peer_lost: bool = False, gpu_fault: str | None = None) -> None:
        """Return to meet the others again; raise ProgramFailedError to end the job, HardwareFailedError to leave it."""
        broken = [failure for failure in failures if failure.is_hardware]
        if broken and self._shall_leave(broken, gpu_fault):
            why = _first_line(broken[0]) or "the worker's last lines say how"
            found = f"; {gpu_fault}" if gpu_fault else ""
            raise HardwareFailedError(f"a GPU of this machine failed: {why}{found}; the job goes on without the machine")
        if broken and not all(may_be_programs(failure.sentence) for failure in broken):
            self._passed_left -= 1
            self._say(f"{_words(broken[0])}; this machine's GPUs pass a test: starting again here, and leaving if it comes again")
            return
        wrong = [failure for failure in failures if failure.is_program and not failure.is_hardware]
        killed = [*_killed(failures), *broken]
        if not wrong and not broken and (peer_lost or all(failure.is_membership for failure in failures)):
            return
        passes = " (this machine's GPUs pass a test)" if broken else ""
        first = (wrong or killed or [failure for failure in failures if not failure.is_membership])[0]
        ruled = self._rules.take(exit_code(first), first.sentence)
        if ruled:
            self._say(f"{_words(first)}{passes}; {ruled}")
            return
        if not wrong and killed and self._kills_left > 0:  # those beside it have missed it
            self._kills_left -= 1
            self._say(f"{_words(killed[0])}{passes}; starting it again, {self._kills_left} more times at most")
            return
        if self._failures_left > 0:
            self._failures_left -= 1
            self._say(f"{_words(first)}{passes}; restarting, {self._failures_left} more times at most")
            return
        raise ProgramFailedError(f"{_words(first)}{passes}: the job ends", exit_code(first))

    def _shall_leave(self, broken: Sequence[Failure], gpu_fault: str | None) -> bool:
        """True without a test, too: then what the worker says is believed."""
        if gpu_fault != "":
            return True
        return self._passed_left <= 0 and not all(may_be_programs(failure.sentence) for failure in broken)


def exit_code(failure: Failure) -> int:
    """The launcher's exit code: the program's own, or a shell's for a signal, but never one that means something else."""
    code = 128 - failure.code if failure.code < 0 else failure.code
    return EXIT_PROGRAM_FAILED if code in (EXIT_FINISHED, EXIT_HARDWARE, EXIT_NO_PROGRAM, *_MEMBERSHIP) else code


def _killed(failures: Sequence[Failure]) -> list[Failure]:
    """But for those that torch's agent has told to end, because another one had failed."""
    by_itself = any(failure.code > 0 for failure in failures)
    return [failure for failure in failures if failure.code < 0 and not (by_itself and failure.code == -signal.SIGTERM)]


def _words(failure: Failure) -> str:
    if failure.sentence:
        return f"a worker failed with exit code {failure.code}: {_first_line(failure)}"
    if failure.code < 0:
        return f"a worker was killed by signal {-failure.code}"
    return f"a worker failed with exit code {failure.code}; its last lines say why"


def _first_line(failure: Failure) -> str:
    return failure.sentence.partition("\n")[0][:_LONGEST_SENTENCE]
