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
