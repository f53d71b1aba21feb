"""The messages about a machine that cannot hold a devcluster."""

from pathlib import Path

import pytest

from devcluster import preflight, tools
from devcluster.machines.cgroups import Hierarchy
from devcluster.preflight import GB, Disk


@pytest.mark.parametrize(
    ("platform", "root", "said"),
    [
        ("linux", True, ""),
        ("linux", False, "repeat it as root"),
        ("darwin", True, "run it on Linux"),
    ],
    ids=["root on Linux", "a user", "a Mac"],
)
def test_root_and_linux(platform: str, root: bool, said: str) -> None:
    problem = preflight.root_problem(platform, root)
    assert said in problem
    assert bool(problem) is bool(said)


def tree(path: str, version: int, *controllers: str) -> Hierarchy:
    return Hierarchy(Path(path), version, frozenset(controllers))


@pytest.mark.parametrize(
    ("trees", "writable", "said"),
    [
        ([tree("/c/a", 1, "rw", "cpu", "memory"), tree("/c/p", 1, "rw", "pids")], True, ""),
        ([tree("/c/a", 1, "rw", "cpu"), tree("/c/p", 1, "rw", "pids")], True, "cgroup_enable=memory"),
        ([tree("/c/a", 1, "rw", "cpu", "memory", "pids")], False, "/c/a cannot be written"),
        ([], True, "no writable control groups"),
    ],
    ids=["v1", "v1 without memory", "read-only", "none"],
)
def test_control_groups_v1(trees: list[Hierarchy], writable: bool, said: str) -> None:
    problem = preflight.cgroup_problem(trees, lambda path: writable)
    assert said in problem
    assert bool(problem) is bool(said)


@pytest.mark.parametrize(
    ("controllers", "said"),
    [("cpuset cpu io memory hugetlb pids rdma", ""), ("cpuset cpu io", "memory,pids")],
    ids=["all", "some missing"],
)
def test_control_groups_v2(tmp_path: Path, controllers: str, said: str) -> None:
    (tmp_path / "cgroup.controllers").write_text(controllers)
    problem = preflight.cgroup_problem([tree(str(tmp_path), 2, "rw", "nsdelegate")], lambda path: True)
    assert said in problem
    assert bool(problem) is bool(said)


@pytest.mark.parametrize(
    ("absent", "packages"),
    [
        (set(), []),
        ({"ctr", "/usr/lib/cni/ptp"}, ["containerd", "containernetworking-plugins"]),
        ({"unshare", "nsenter"}, ["util-linux"]),
    ],
    ids=["nothing", "a program and a file", "two of one package"],
)
def test_missing_packages(absent: set[str], packages: list[str]) -> None:
    assert preflight.missing_packages(lambda used: used not in absent) == packages


def test_a_full_disk_says_how_full_and_what_to_do() -> None:
    assert preflight.disk_problem(Disk(folder=Path("/data"), free=20 * GB, needed=16 * GB)) == ""
    assert preflight.disk_problem(Disk(folder=Path("/data"), free=2_500_000_000, needed=16 * GB)) == (
        "/data has 2.5 GB free and 16 GB are needed: make room, or set EBB_HOME to a folder on a larger disk"
    )


def test_a_first_run_needs_more_room_than_a_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = preflight.disk(tmp_path / "not" / "there")
    assert first.folder == tmp_path
    monkeypatch.setattr(tools, "is_ready", lambda name, home: True)
    assert preflight.disk(tmp_path / "not" / "there").needed < first.needed
