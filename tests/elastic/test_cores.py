"""How many cores a rank may use: from cgroup files of both versions, and the request that the controller passes on."""

import os
from pathlib import Path

import pytest

from ebb.elastic.cores import cores_of_this_rank

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


def requesting(thousandths: str) -> dict[str, str]:
    return {**POD, "EBB_CPU_REQUEST": thousandths}


@pytest.mark.parametrize(
    ("files", "environment", "ranks", "expected"),
    [
        pytest.param({}, {}, 1, 16, id="no-cgroup"),
        pytest.param({}, {}, 4, 4, id="shared-by-ranks"),
        pytest.param({}, {}, 64, 1, id="never-zero"),
        pytest.param({"cpu.max": "300000 100000"}, {}, 1, 3, id="v2-limit"),
        pytest.param({"cpu.max": "max 100000"}, {}, 1, 16, id="v2-no-limit"),
        pytest.param({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, {}, 1, 1, id="v1-half-a-core"),
        pytest.param({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, {}, 1, 16, id="v1-no-limit"),
        pytest.param({}, requesting("3500"), 1, 4, id="request-of-3.5"),
        pytest.param({"cpu.weight": "79"}, requesting("2000"), 1, 2, id="request-of-2"),
        # runc 1.3.2 and later: a request of 1 CPU has the weight 100, which read as 2.54 cores before (runc issue 4896)
        pytest.param({"cpu.max": "max 100000", "cpu.weight": "100"}, requesting("1000"), 1, 1, id="request-of-1-under-new-runc"),
        pytest.param({"cpu.max": "300000 100000"}, requesting("8000"), 1, 3, id="a-limit-below-the-request"),
        pytest.param({}, requesting("0"), 2, 8, id="no-request"),
        pytest.param({"cpu.weight": "79"}, POD, 1, 16, id="a-pod-of-another-controller"),
    ],
)
def test_cores(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    files: dict[str, str],
    environment: dict[str, str],
    ranks: int,
    expected: int,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert cores_of_this_rank(environment, ranks, cgroup=tmp_path) == expected
