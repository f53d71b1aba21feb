"""Runs of torch's own rendezvous: what is asked of an etcd, and on a real etcd 3.5 that a late worker meets the others.

Without the folder made before, it begins a world of its own: that is shown too, as it is why the controller makes it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from devcluster import tools
from ebb.controller.etcd.legacy import RunError, Runs, http_send
from tests.builders import UID, make_job
from tests.elastic.machines import start_etcd, until

Object = dict[str, Any]
PLACE = "/torchelastic/p2p"
LIFE = 3
"""Seconds that torch gives a run here, in place of two hours."""


def run(name: str, *members: str) -> Object:
    """A run's folder as etcd shows it."""
    key = f"{PLACE}/run_{name}"
    version = {"key": f"{key}/rdzv/v_1", "dir": True, "nodes": [{"key": f"{key}/rdzv/v_1/{one}", "ttl": 9} for one in members]}
    return {"key": key, "dir": True, "nodes": [{"key": f"{key}/rdzv", "dir": True, "nodes": [version]}]}


class Etcd:
    """The part of etcd's v2 API that is used."""

    def __init__(self, *runs: Object, said: Object | None = None) -> None:
        self.runs, self.said, self.asked = runs, said, list[tuple[str, str, Mapping[str, str]]]()

    async def __call__(self, method: str, address: str, fields: Mapping[str, str]) -> Object:
        self.asked.append((method, address, fields))
        return self.said or ({"node": {"key": PLACE, "dir": True, "nodes": list(self.runs)}} if method == "GET" else {"node": {}})

    @property
    def deleted(self) -> list[str]:
        return [address.rpartition("/")[2] for method, address, _ in self.asked if method == "DELETE"]


async def test_the_folder_is_made_without_an_end() -> None:
    etcd = Etcd()
    await Runs(etcd, jobs=list).create("old:2379", f"{PLACE}/run_a")
    assert etcd.asked == [("PUT", f"http://old:2379/v2/keys{PLACE}/run_a", {"dir": "true", "prevExist": "false"})]


async def test_one_that_exists_is_as_good() -> None:
    await Runs(Etcd(said={"errorCode": 105, "message": "Key already exists"}), jobs=list).create("old:2379", f"{PLACE}/run_a")


async def test_what_etcd_refuses_is_said() -> None:
    refused = Etcd(said={"errorCode": 300, "message": "Raft Internal Error"})
    with pytest.raises(RunError, match="Raft Internal Error: workers could not meet there"):
        await Runs(refused, jobs=list).create("old:2379", f"{PLACE}/run_a")


SHORT = f"digits-{UID[:8]}"
SWEPT: dict[str, tuple[Object, bool]] = {
    "of a job that is gone": (run("gone-01234567"), True),
    "a later attempt of it": (run("gone-01234567-r2"), True),
    "of a job that is there": (run(SHORT), False),
    "a later attempt of that": (run(f"{SHORT}-r1"), False),
    "where members are left": (run("gone-01234567", "rank_0"), False),
    "with an id that somebody chose": (run("mine"), False),
    "what is no run": ({"key": f"{PLACE}/gone-01234567", "dir": True}, False),
}


@pytest.mark.parametrize(("there", "swept"), SWEPT.values(), ids=SWEPT)
async def test_runs_that_are_over_are_taken_away(there: Object, swept: bool) -> None:
    etcd = Etcd(there, run("another"))
    runs = Runs(etcd, jobs=lambda: [make_job()])
    await runs.create("old:2379", f"{PLACE}/run_{SHORT}")
    await runs.sweep()
    assert etcd.deleted == ([there["key"].rpartition("/")[2]] if swept else [])


async def test_nothing_is_swept_where_nothing_was_made_or_all_is_gone() -> None:
    etcd = Etcd()
    runs = Runs(etcd, jobs=list)
    await runs.sweep()
    assert etcd.asked == []
    await runs.create("old:2379", f"{PLACE}/run_a")
    etcd.said = {"errorCode": 100, "message": "Key not found"}
    await runs.sweep()


# --- On a real etcd, which is built when it is not there, with torch's own handler ---


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    process, endpoint = start_etcd(tools.main_ensure(tools.LEGACY_ETCD) / "etcd", tmp_path_factory.mktemp("etcd"), "--enable-v2")
    yield endpoint
    process.kill()
    process.wait()


@pytest.fixture
def member(etcd: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], "Member"]]:
    torchs = pytest.importorskip("torch.distributed.elastic.rendezvous.etcd_rendezvous", reason="torch is not installed")
    pytest.importorskip("etcd", reason="python-etcd is not installed")
    monkeypatch.setattr(torchs, "CONST_RUNID_SUBROOT_TTL", LIFE)
    monkeypatch.setattr(
        threading, "excepthook", lambda failure: None
    )  # of threads that renew in vain, and of those left at the end
    made: list[Member] = []

    def make(name: str) -> Member:
        made.append(Member(torchs, etcd, name))
        return made[-1]

    yield make
    for one in made:
        one.stop()
    for one in made:
        one.join()


class Member:
    """A worker of torch's own rendezvous, which meets in a thread; `world` is (rank, size) once it has."""

    def __init__(self, torchs: Any, endpoint: str, name: str) -> None:
        import etcd

        host, _, port = endpoint.rpartition(":")
        client = etcd.Client(host=host, port=int(port), allow_reconnect=True)  # type: ignore[attr-defined,no-untyped-call]
        self._made = torchs.EtcdRendezvous(client, PLACE, name, 1, 3, 60, 1)
        self._closed = torchs.RendezvousClosedError
        self.world: tuple[int, int] | None = None
        self._thread = threading.Thread(target=self._meet, daemon=True)
        self._thread.start()

    def _meet(self) -> None:
        with suppress(self._closed):
            _, rank, size = self._made.rendezvous_barrier()
            self.world = (rank, size)

    def waiting(self) -> int:
        _, state = self._made.get_rdzv_state()
        return int(state.get("num_workers_waiting", 0))

    def stop(self) -> None:
        """And whoever waits for it."""
        for stop in (self._made._lease_run_id_stop, self._made._lease_this_rank_stop):
            if stop is not None:
                stop.set()
        self._made.set_closed()

    def join(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()


async def exists(endpoint: str, name: str) -> bool:
    async with http_send() as send:
        return "node" in await send("GET", f"http://{endpoint}/v2/keys{PLACE}/run_{name}", {})


@pytest.mark.e2e
async def test_torch_alone_loses_the_run_and_a_late_worker_is_alone(etcd: str, member: Callable[[str], Member]) -> None:
    first = member("lost")
    until("the first has met", lambda: first.world)
    deadline = time.monotonic() + 3 * LIFE
    while await exists(etcd, "lost"):
        assert time.monotonic() < deadline, "the run should have ended"
    late = member("lost")
    assert (until("the late one has met", lambda: late.world), first.world) == ((0, 1), (0, 1)), "two worlds"


@pytest.mark.e2e
async def test_in_a_folder_that_was_there_a_late_worker_finds_the_others(etcd: str, member: Callable[[str], Member]) -> None:
    async with http_send() as send:
        runs = Runs(send, jobs=list)
        await runs.create(etcd, f"{PLACE}/run_kept")
        await runs.create(etcd, f"{PLACE}/run_kept")
        first, born = member("kept"), time.monotonic()
        until("the first has met", lambda: first.world)
        until("torch's run would have ended twice", lambda: time.monotonic() > born + 2 * LIFE, 3 * LIFE)
        late = member("kept")
        until("the first sees that somebody waits", lambda: first.waiting() == 1)
        assert late.world is None


@pytest.mark.e2e
async def test_a_run_that_is_over_is_gone(etcd: str) -> None:
    async with http_send() as send:
        runs = Runs(send, jobs=lambda: [make_job()])
        for name in ("gone-01234567", SHORT):
            await runs.create(etcd, f"{PLACE}/run_{name}")
        await runs.sweep()
        assert (await exists(etcd, "gone-01234567"), await exists(etcd, SHORT)) == (False, True)


@pytest.mark.e2e
async def test_an_etcd_without_the_api_is_said(tmp_path: Path) -> None:
    process, endpoint = start_etcd(await tools.ensure("etcd36") / "etcd", tmp_path)
    try:
        async with http_send() as send:
            with pytest.raises(RunError, match=r"404: is this an etcd 3\.5 with --enable-v2"):
                await Runs(send, jobs=list).create(endpoint, f"{PLACE}/run_a")
    finally:
        process.kill()
        process.wait()


async def test_an_etcd_that_is_away_is_said() -> None:
    async with http_send() as send:
        with pytest.raises(RunError, match="does this etcd run"):
            await Runs(send, jobs=list).create("127.0.0.1:9", f"{PLACE}/run_a")
