"""Faults by kind, from what an exception or the kernel's log says. Pure, and without torch.

    fault_of("NCCL error in: ..., remote process exited or there was a network error, ...")     # Fault.PEER

Several kinds share words, so the order counts: an NCCL error whose last words are that a GPU ran out of memory is one of memory,
and one that says that the library was used wrongly will be said again after every restart. A text that merely has the word
NCCL in it is the program's. The texts that this was made from are in tests/elastic/test_faults.py.
"""

from __future__ import annotations

import enum
import re


class Fault(enum.Enum):
    """PEER: another rank, or the network to it. HARDWARE: this machine's GPU. MEMORY: the GPU's is too small for the step.
    PROGRAM: everything else; it would fail again."""

    PEER = "peer"
    HARDWARE = "hardware"
    MEMORY = "memory"
    PROGRAM = "program"


# Xids after which NVIDIA's device plugin for Kubernetes goes on to offer the GPU: what an application did wrong
# (internal/rm/health.go of k8s-device-plugin; https://docs.nvidia.com/deploy/xid-errors)
_XIDS_OF_PROGRAMS = {13, 31, 43, 45, 68, 109}
_XID = re.compile(
    r"\bXid \([^)]*\): (\d+)(?:.* previous Xid (\d+))?"
)  # the channels that a fault takes down have one of their own
_TEXTS = [
    (Fault.PROGRAM, r"ncclInvalid(Usage|Argument)|invalid (usage|argument)\b.*NCCL version|Duplicate GPU detected"),
    (Fault.PROGRAM, r"shared memory segment|No space left on device"),  # NCCL's system error where /dev/shm is too small
    (Fault.MEMORY, r"out of memory|OUT_OF_MEMORY|STATUS_ALLOC_FAILED|DefaultCPUAllocator: can't allocate memory"),
    (
        Fault.HARDWARE,
        r"uncorrectable .*error|ECC error|unspecified launch failure|fallen off the bus|GPU is lost|hardware (stack )?error"
        r"|Unable to determine the device handle for GPU",
    ),
    (Fault.PEER, r"nccl(Remote|System|Internal)Error|remote process exited|(unhandled system|internal) error\b.*NCCL version"),
    (Fault.PEER, r"NCCL communicator (was aborted|encountered error)|Watchdog caught collective operation timeout"),
    (
        Fault.PEER,
        r"\bgloo\b|\b(pair|buffer)\.cc:\d+\]|connection (closed|reset) by (remote )?peer|broken pipe"
        r"|\bDist(Network|Store)Error\b",
    ),
    (Fault.PEER, r"timed out waiting \d+ms for (send|recv)"),
]
_KINDS = [(kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _TEXTS]
# CUDA says the same of a kernel that reads past its memory or overflows its stack, which it calls the common cause
# (cudaErrorLaunchFailure, cudaErrorHardwareStackError in the CUDA runtime's list of errors).
_MAY_BE_PROGRAMS = re.compile(r"unspecified launch failure|hardware stack error", re.IGNORECASE)


def may_be_programs(text: str) -> bool:
    """True for a fault of the hardware's kind that a program can cause on a GPU that is well."""
    return _MAY_BE_PROGRAMS.search(text) is not None


def fault_of(text: str) -> Fault:
    return known_fault(text) or Fault.PROGRAM


def known_fault(text: str) -> Fault | None:
    """None for a text that says none of these: the program's, unless more is known of it."""
    if found := _XID.search(text):
        return Fault.PROGRAM if int(found[2] or found[1]) in _XIDS_OF_PROGRAMS else Fault.HARDWARE
    return next((kind for kind, pattern in _KINDS if pattern.search(text)), None)
