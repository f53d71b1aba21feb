"""The memory that this process may still take: the machine's, and in a container what its limit leaves, which is the pod's.

    free_memory()      # bytes

A process that takes more than its pod may have is killed without a word, so the machine's own figure is the wrong one
there. The limit is that of cgroup v2 or v1: they have other files for the same facts.
"""

from __future__ import annotations

from pathlib import Path

_CGROUP, _MACHINE = Path("/sys/fs/cgroup"), Path("/proc/meminfo")
# Limit, what is held, and of that the files' pages, which are let go when need be.
_V2 = ("memory.max", "memory.current", "memory.stat", ("inactive_file", "active_file"))
_V1 = (
    "memory/memory.limit_in_bytes",
    "memory/memory.usage_in_bytes",
    "memory/memory.stat",
    ("total_inactive_file", "total_active_file"),
)


def free_memory(cgroup: Path = _CGROUP, machine: Path = _MACHINE) -> int:
    """Bytes, 0 at least."""
    lines = dict(line.split(":", 1) for line in machine.read_text(encoding="ascii").splitlines())
    free = int(lines["MemAvailable"].split()[0]) * 1024
    for limit, held, facts, files in (_V2, _V1):
        try:
            most = int((cgroup / limit).read_text(encoding="ascii"))
            used = int((cgroup / held).read_text(encoding="ascii"))
            stat = dict(line.split() for line in (cgroup / facts).read_text(encoding="ascii").splitlines())
        except (OSError, ValueError):  # the other version, or no limit: v2 has the word max, v1 a huge number
            continue
        free = min(free, most - used + sum(int(stat.get(name, 0)) for name in files))
    return max(0, free)
