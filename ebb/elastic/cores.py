"""The cores that this rank may use: those of the process, shared by the ranks of its machine.

    cores_of_this_rank(os.environ, local_world_size=2)

The number of CPUs of the machine is the wrong answer in a container: two ranks with as many threads as the machine has cores
take more than twice as long per step as with their own. So: the affinity mask, the CPU limit, and the pod's CPU request (its
share of the machine), whichever is smallest. The request comes from the controller, through Kubernetes' downward API: in cgroup
v2 there is only a weight, and newer versions of runc make it from a request by another formula than older ones.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ebb.elastic.contract import ENV_CPU_REQUEST

_CGROUP = Path("/sys/fs/cgroup")


def cores_of_this_rank(environment: Mapping[str, str], local_world_size: int, cgroup: Path = _CGROUP) -> int:
    """At least 1."""
    cores = float(len(os.sched_getaffinity(0)))
    for bound in (_limit(cgroup), _request(environment)):
        cores = min(cores, bound) if bound else cores
    return max(1, int(cores / local_world_size + 0.5))


def _limit(cgroup: Path) -> float | None:
    """The CPU limit in cores, cgroup v2 then v1."""
    parts = _read(cgroup / "cpu.max").split()
    if not parts:
        parts = [_read(cgroup / "cpu/cpu.cfs_quota_us"), _read(cgroup / "cpu/cpu.cfs_period_us")]
    if "" in parts or parts[0] in ("max", "-1"):
        return None
    return int(parts[0]) / int(parts[1])


def _request(environment: Mapping[str, str]) -> float | None:
    """The CPU request in cores."""
    thousandths = environment.get(ENV_CPU_REQUEST, "")
    return int(thousandths) / 1000 if thousandths.isdecimal() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
