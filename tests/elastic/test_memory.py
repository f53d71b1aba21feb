"""The memory that a process may still take: from the machine's and the cgroup's files, of both versions."""

from pathlib import Path

import pytest

from ebb.elastic.memory import free_memory

MACHINE = 8000 * 1024
STAT = {
    "memory.stat": "anon 1\nshmem 5\ninactive_file 500000\nactive_file 200000\n",
    "memory/memory.stat": "cache 9\ninactive_file 1\ntotal_inactive_file 500000\ntotal_active_file 200000\n",
}


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        pytest.param({}, MACHINE, id="no cgroup"),
        pytest.param({"memory.max": "max"}, MACHINE, id="v2, no limit"),
        pytest.param({"memory.max": "5000000", "memory.current": "3000000"}, 2700000, id="v2"),
        pytest.param({"memory.max": "1000", "memory.current": "3000000"}, 0, id="v2, over its limit"),
        pytest.param(
            {"memory/memory.limit_in_bytes": "9223372036854771712", "memory/memory.usage_in_bytes": "3000000"},
            MACHINE,
            id="v1, no limit",
        ),
        pytest.param(
            {"memory/memory.limit_in_bytes": "5000000", "memory/memory.usage_in_bytes": "3000000"}, 2700000, id="v1"
        ),
    ],
)  # fmt: skip
def test_free_memory_is_the_machines_and_the_pods(tmp_path: Path, files: dict[str, str], wanted: int) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable: 8000 kB\nHugePages_Total: 0\n")
    (tmp_path / "memory").mkdir()
    for name, text in {**files, **STAT}.items():
        (tmp_path / name).write_text(text.rstrip() + "\n")
    assert free_memory(tmp_path, tmp_path / "meminfo") == wanted
