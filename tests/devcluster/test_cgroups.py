"""Which trees of control groups a host has, and who is in a group."""

from pathlib import Path

import pytest

from devcluster.machines import cgroups

V1 = """
30 25 0:26 / /sys/fs/cgroup/memory rw,relatime shared:1 - cgroup cgroup rw,memory
31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:2 - cgroup cgroup rw,cpu,cpuacct
32 25 0:28 / /sys/fs/cgroup/pids ro,relatime shared:3 - cgroup cgroup rw,pids
""".strip()
UNIFIED = "33 25 0:29 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw"
V2 = "24 23 0:22 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate"


@pytest.mark.parametrize(
    ("mountinfo", "roots", "is_v2"),
    [
        (V1, ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu,cpuacct"], False),
        (f"{V1}\n{UNIFIED}", ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/unified"], False),
        (V2, ["/sys/fs/cgroup"], True),
    ],
    ids=["v1, one tree read-only", "hybrid", "v2"],
)
def test_trees_of_a_host(mountinfo: str, roots: list[str], is_v2: bool) -> None:
    trees = cgroups.hierarchies(mountinfo)
    assert [str(tree.root) for tree in trees] == roots
    assert cgroups.is_v2(trees) is is_v2


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two v1 trees as plain folders."""
    found = [cgroups.Hierarchy(tmp_path / name, 1, frozenset({name})) for name in ("memory", "cpuset")]
    monkeypatch.setattr(cgroups, "hierarchies", lambda: found)
    return tmp_path


def test_a_process_joins_every_tree_but_cpuset(trees: Path) -> None:
    assert cgroups.create("ebb/b/daemons/etcd") == [trees / "memory/ebb/b/daemons/etcd/cgroup.procs"]
    assert cgroups.exists("ebb/b") == [trees / "memory/ebb/b", trees / "cpuset/ebb/b"]


def test_members_are_counted_through_all_trees_and_groups_below(trees: Path) -> None:
    cgroups.create("ebb/b/machines/m")
    (trees / "memory/ebb/b/cgroup.procs").write_text("")
    (trees / "memory/ebb/b/machines/m/cgroup.procs").write_text("12\n13\n")
    (trees / "cpuset/ebb/b/machines/m/cgroup.procs").write_text("13\n14\n0\n")
    assert cgroups.members("ebb/b") == {12, 13, 14}
    assert cgroups.members("ebb/other") == set()


async def test_removal_takes_the_whole_group(trees: Path) -> None:
    cgroups.create("ebb/b/machines/m/pods")
    cgroups.create("ebb/other")
    await cgroups.remove("ebb/b")
    assert cgroups.exists("ebb/b") == []
    assert len(cgroups.exists("ebb/other")) == 2


def test_on_v2_controllers_are_passed_down_to_the_pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "hierarchies", lambda: [cgroups.Hierarchy(tmp_path, 2, frozenset({"rw"}))])
    (tmp_path / "cgroup.controllers").write_text("cpu\n")
    cgroups.delegate("ebb/b/pods")
    written = {path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("cgroup.subtree_control")}
    assert written == {".", "ebb", "ebb/b"}
    assert (tmp_path / "ebb" / "cgroup.subtree_control").read_text() == "+cpu"
