"""Freed memory is used again without the kernel; a user's own settings stay."""

import subprocess
import sys

import pytest

from ebb.elastic.speed import memory

# Pages that are touched for the first time, when 64 MB are taken, filled and freed five times
PROGRAM = """
import resource, runpy, sys
if sys.argv[1:]:  # by its path: the package would import torch
    assert runpy.run_path(sys.argv[1])["keep_freed_memory"]({})
bytes_of = lambda: len(bytearray(64 << 20))
bytes_of()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    bytes_of()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def first_touches(*module: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *module], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_what_was_freed_is_not_asked_for_again() -> None:
    assert first_touches() > 10_000, "this C library keeps it anyway: the module is not needed"
    assert first_touches(memory.__file__) < 1_000


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_a_users_own_setting_stays(name: str) -> None:
    assert not memory.keep_freed_memory({name: "1"})


AHEAD = """
import resource, runpy, sys, types
module = runpy.run_path(sys.argv[1])
assert module["keep_freed_memory"]({})
if sys.argv[2:]:
    module["take_ahead"]([types.SimpleNamespace(nbytes=16 << 20)] * 4)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
taken = [bytearray(8 << 20) for _ in range(8)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.parametrize(("ahead", "waits"), [([], True), (["ahead"], False)], ids=["as-it-is-needed", "ahead"])
def test_what_was_taken_ahead_is_there(ahead: list[str], waits: bool) -> None:
    command = [sys.executable, "-c", AHEAD, memory.__file__, *ahead]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (int(done.stdout) > 10_000) == waits


RETURNED = """
import runpy, sys
module = runpy.run_path(sys.argv[1])
resident = lambda: int(open("/proc/self/statm").read().split()[1])
assert module["keep_freed_memory"]({})
bytes_of = lambda: [bytearray(8 << 20) for _ in range(8)]
before = resident()
bytes_of()
kept = resident() - before
module["return_freed_memory"]({})
bytes_of()
print(kept, resident() - before)
"""


def test_a_sharded_models_ranks_return_what_they_have_kept() -> None:
    done = subprocess.run([sys.executable, "-c", RETURNED, memory.__file__], capture_output=True, text=True, check=True)
    kept, returned = map(int, done.stdout.split())
    assert kept > 10_000
    assert returned < 1_000
