"""The cores that this rank may use: those of the process, shared by the ranks of its machine.

    cores_of_this_rank(os.environ, local_world_size=2)

The number of CPUs of the machine is the wrong answer in a container: two ranks with as many threads as the machine has cores
take more than twice as long per step as with their own. So: the affinity mask, the CPU limit, and in a pod the CPU request
(its share of the machine), whichever is smallest. It reads cgroup files, nothing else.
"""

import os
from collections.abc import Mapping
from pathlib import Path

_IN_A_POD = "KUBERNETES_SERVICE_HOST"
_CGROUP = Path("/sys/fs/cgroup")


def cores_of_this_rank(environment: Mapping[str, str], local_world_size: int, cgroup: Path = _CGROUP) -> int:
    """At least 1."""
    cores = float(len(os.sched_getaffinity(0)))
    limit = _limit(cgroup)
    if limit:
        cores = min(cores, limit)
    request = _request(cgroup)
    if request and _IN_A_POD in environment:
        cores = min(cores, request)
    return max(1, int(cores / local_world_size + 0.5))


def _limit(cgroup: Path) -> float | None:
    """The CPU limit in cores, cgroup v2 then v1."""
    parts = _read(cgroup / "cpu.max").split()
    if not parts:
        parts = [_read(cgroup / "cpu/cpu.cfs_quota_us"), _read(cgroup / "cpu/cpu.cfs_period_us")]
    if "" in parts or parts[0] in ("max", "-1"):
        return None
    return int(parts[0]) / int(parts[1])


def _request(cgroup: Path) -> float | None:
    """The CPU request in cores. v2 keeps a weight that the runtime made from v1's shares by a line; this inverts it."""
    shares = _read(cgroup / "cpu/cpu.shares")
    weight = _read(cgroup / "cpu.weight")
    if shares:
        return int(shares) / 1024
    if weight:  # weight = 1 + (shares - 2) * 9999 / 262142 (KEP-2254)
        return (2 + (int(weight) - 1) * 262142 / 9999) / 1024
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
