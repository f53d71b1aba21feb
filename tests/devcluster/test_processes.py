"""How a daemon is known again: by its control group, and by a digest of its command line."""

import subprocess
from pathlib import Path

import pytest

from devcluster.machines import cgroups, processes
from devcluster.machines.processes import Daemon, ProcessError
from devcluster.settings import Box

ETCD = Daemon(name="etcd", args=["/tools/etcd-1/etcd", "--name=box"], netns="ebb.test")


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(name="test", slot=0, home=tmp_path)


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[int]]:
    """Control groups and the pids in them; a launch adds one."""
    groups: dict[str, set[int]] = {}

    async def kill(path: str) -> None:
        groups.pop(path, None)

    async def remove(path: str) -> None:
        pass

    def launch(args: list[str], *, cgroup: str, log: Path, env: object = None) -> None:
        groups[cgroup] = {1000 + len(args)}

    monkeypatch.setattr(cgroups, "members", lambda path: groups.get(path, set()))
    monkeypatch.setattr(cgroups, "kill", kill)
    monkeypatch.setattr(cgroups, "remove", remove)
    monkeypatch.setattr(processes, "launch", launch)
    return groups


async def healthy() -> bool:
    return True


@pytest.mark.parametrize(
    "other",
    [
        Daemon(name="etcd", args=["/tools/etcd-2/etcd", "--name=box"], netns="ebb.test"),
        Daemon(name="etcd", args=["/tools/etcd-1/etcd", "--name=box"], netns="ebb.other"),
        Daemon(name="etcd", args=["/tools/etcd-1/etcd", "--name=box"], netns="ebb.test", env={"A": "1"}),
    ],
    ids=["another program", "another network", "another environment"],
)
def test_a_change_changes_the_digest(other: Daemon) -> None:
    assert other.digest != ETCD.digest
    assert Daemon(name="etcd", args=list(ETCD.args), netns=ETCD.netns).digest == ETCD.digest


async def test_a_running_daemon_is_left_alone(box: Box, running: dict[str, set[int]]) -> None:
    assert await processes.ensure(box, ETCD, healthy) is True
    assert processes.is_alive(box, "etcd")
    assert await processes.ensure(box, ETCD, healthy) is False


async def test_a_daemon_with_another_command_line_is_started_afresh(box: Box, running: dict[str, set[int]]) -> None:
    await processes.ensure(box, ETCD, healthy)
    changed = Daemon(name="etcd", args=[*ETCD.args, "--debug"], netns=ETCD.netns)
    assert await processes.ensure(box, changed, healthy) is True


async def test_a_half_started_daemon_is_started_afresh(box: Box, running: dict[str, set[int]]) -> None:
    # Killed between the start and the note of it: it is in its group, and there is no digest.
    running[processes.cgroup_of(box, "etcd")] = {77}
    assert await processes.ensure(box, ETCD, healthy) is True
    assert running[processes.cgroup_of(box, "etcd")] != {77}


async def test_a_hanging_daemon_is_started_afresh(
    box: Box, running: dict[str, set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "HUNG_SECONDS", 0.0)
    await processes.ensure(box, ETCD, healthy)
    first = running[processes.cgroup_of(box, "etcd")]

    async def only_the_new_one() -> bool:
        return running[processes.cgroup_of(box, "etcd")] is not first

    assert await processes.ensure(box, ETCD, only_the_new_one) is True


async def test_the_error_of_an_unhealthy_daemon_ends_with_its_log(box: Box, running: dict[str, set[int]]) -> None:
    running[processes.cgroup_of(box, "etcd")] = {77}
    box.logs.mkdir(parents=True)
    processes.log_of(box, "etcd").write_text("first\nbind: address already in use\n")

    async def never() -> bool:
        return False

    with pytest.raises(ProcessError, match=r"(?s)etcd of devcluster 'test' is not healthy.*address already in use"):
        await processes.await_healthy(box, "etcd", never, patience_seconds=0.0)


@pytest.mark.parametrize(("runs_seconds", "starts"), [(3, 3), (0, 1)], ids=["again", "it cannot start"])
def test_a_program_that_ends_by_itself_is_started_again_if_it_had_run(tmp_path: Path, runs_seconds: int, starts: int) -> None:
    """Only its first start runs for as long as is asked for; the third ends the keeper."""
    starts_so_far = f"echo started >> {tmp_path}/starts; n=$(wc -l < {tmp_path}/starts)"
    program = f'{starts_so_far}; [ "$n" -gt 1 ] || sleep {runs_seconds}; [ "$n" -lt 3 ] || kill "$PPID"; exit 7'
    keeper = ["sh", "-c", processes.KEEP, "scheduler", "2", "sh", "-c", program]
    done = subprocess.run(keeper, capture_output=True, text=True, timeout=60, check=False)
    assert (tmp_path / "starts").read_text().splitlines() == ["started"] * starts
    assert done.stdout.splitlines() == ["scheduler ended with 7: again"] * (starts - 1)
