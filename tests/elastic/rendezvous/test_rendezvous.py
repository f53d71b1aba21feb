"""Machines that come, leave, vanish, stand still and are cut off, on real etcd, through the real handler."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebb.elastic.rendezvous.wire import Item
from tests.elastic.machines import until
from tests.elastic.rendezvous.machine import Machines, handler
from tests.elastic.rendezvous.proxy import Proxy
from tests.elastic.rendezvous.servers import Server

pytestmark = pytest.mark.e2e


@pytest.fixture
def machines(etcd: Server, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Machines]:
    yield from running(Machines(etcd.endpoint, tmp_path, job=request.node.name))


def running(machines: Machines) -> Iterator[Machines]:
    """To the end of the test; what the machines saw of each generation must be the same."""
    yield machines
    machines.kill_all()
    for number, seen in machines.numbers().items():
        assert all(names == seen[0] for names in seen), f"generation {number} was seen as {seen}"


def test_join_grow_leave(machines: Machines, etcd: Server) -> None:
    machines.environment["EBB_PLANNED_WORKERS"] = "1"
    machines.start("a")
    assert machines.together("a") == 1
    machines.environment["EBB_PLANNED_WORKERS"] = "2"
    machines.start("b")
    assert machines.together("a", "b") == 2
    machines.environment["EBB_PLANNED_WORKERS"] = "4"
    machines.start("c")
    machines.start("d")
    assert machines.together("a", "b", "c", "d") == 3, "both at once"
    assert machines["a"].last()["rank"] == 0, "the oldest stays first"

    before = time.monotonic()
    machines["a"].leave()
    machines.together("b", "c", "d", limit_seconds=5)
    machines["c"].leave()
    machines.together("b", "d", limit_seconds=5)
    assert time.monotonic() - before < 5, "nobody waits for a lease"
    assert machines["b"].last()["names"] == ["b", "d"]
    assert [event["lost"] for event in machines["d"].events() if event["event"] == "out"] == [False, False], (
        "time to save for all"
    )


def test_rank_0_of_three_vanishes(machines: Machines) -> None:
    machines.environment["EBB_PLANNED_WORKERS"] = "3"
    for name in "abc":
        machines.start(name)
    number = machines.together("a", "b", "c")
    first = next(name for name in "abc" if machines[name].last()["rank"] == 0)
    before = time.monotonic()
    machines[first].kill()
    others = [name for name in "abc" if name != first]
    assert machines.together(*others) > number
    assert time.monotonic() - before < 5, "nobody waits for a lease"
    assert all(machines[name].events()[-2]["lost"] for name in others)


def test_all_vanish_at_once(machines: Machines, capsys: pytest.CaptureFixture[str]) -> None:
    # long beside what newcomers wait for, a missed renewal (0.3 of it), and beside what a busy machine adds
    machines.settings["lease_seconds"] = 20
    machines.environment["EBB_PLANNED_WORKERS"] = "3"
    for name in "abc":
        machines.start(name)
    number = machines.together("a", "b", "c")
    for name in "abc":
        machines[name].signal(signal.SIGKILL)
    since = time.monotonic()
    for name in "def":
        machines.start(name)
    assert machines.together("d", "e", "f") == number + 1
    seconds = time.monotonic() - since
    with capsys.disabled():
        print(f"\nall members killed, as many newcomers: {seconds:.1f} s to the next generation")
    assert seconds < 14, "nobody waits for a lease of twenty seconds"


def test_all_stand_still_and_are_not_taken_for_dead(machines: Machines) -> None:
    machines.environment["EBB_PLANNED_WORKERS"] = "2"
    machines.start("a")
    machines.start("b")
    number = machines.together("a", "b")
    for name in "ab":
        machines[name].signal(signal.SIGSTOP)
    since = time.monotonic()
    machines.start("c")
    machines.start("d")
    time.sleep(max(0.0, since + 6 - time.monotonic()))  # what must not happen has no event; less than a lease
    assert [machines[name].last()["event"] for name in "cd"] == ["none", "none"], "a second world beside the first"
    for name in "ab":
        machines[name].signal(signal.SIGCONT)
    assert machines.together("a", "b", "c", "d") == number + 1
    assert [machines[name].events()[1]["lost"] for name in "ab"] == [False, False]


def test_one_more_than_the_maximum_waits(machines: Machines) -> None:
    machines.settings["size"] = "1:2"
    machines.start("a")
    machines.start("b")
    number = machines.together("a", "b")
    machines.start("c")
    time.sleep(2)  # what must not happen has no event
    assert machines.together("a", "b") == number
    assert machines["c"].last()["event"] == "none"
    machines["a"].leave()
    machines.together("b", "c")


def test_a_machine_that_stood_still_comes_back_as_a_newcomer(machines: Machines) -> None:
    machines.environment["EBB_PLANNED_WORKERS"] = "3"
    for name in "abc":
        machines.start(name)
    number = machines.together("a", "b", "c")
    asleep = next(name for name in "abc" if machines[name].last()["rank"] == 0)
    others = [name for name in "abc" if name != asleep]
    machines[asleep].signal(signal.SIGSTOP)
    since = time.monotonic()
    assert machines.together(*others, limit_seconds=15) == number + 1
    time.sleep(max(0.0, 20 - (time.monotonic() - since)))
    machines[asleep].signal(signal.SIGCONT)
    assert machines.together("a", "b", "c") == number + 2
    assert [event["event"] for event in machines[asleep].events()] == ["in", "out", "in"]
    assert machines[asleep].events()[1]["lost"]
    assert machines[asleep].last()["rank"] == 2, "the newest is last"


def test_a_machine_that_is_cut_off_splits_nothing(machines: Machines, etcd: Server) -> None:
    machines.environment["EBB_PLANNED_WORKERS"] = "3"
    machines.settings["lease_seconds"] = 4
    proxy = Proxy(etcd.port)
    machines.start("a", endpoint=proxy.endpoint)
    machines.start("b")
    machines.start("c")
    number = machines.together("a", "b", "c")
    proxy.cut()
    assert machines.together("b", "c") == number + 1
    assert [event["event"] for event in machines["a"].events()] == ["in"], "it knows nothing, and trains on; it can save nothing"
    proxy.heal()
    machines.together("a", "b", "c")
    proxy.close()


@pytest.fixture
def on_own_etcd(own_etcd: Server, tmp_path: Path) -> Iterator[Machines]:
    yield from running(Machines(own_etcd.endpoint, tmp_path, {"EBB_PLANNED_WORKERS": "2"}))


def test_a_restart_of_etcd_is_not_noticed(on_own_etcd: Machines, own_etcd: Server) -> None:
    machines = on_own_etcd
    machines.settings["lease_seconds"] = 3
    machines.start("a")
    machines.start("b")
    number = machines.together("a", "b")
    own_etcd.kill()
    time.sleep(5)  # longer than a lease
    own_etcd.start()
    time.sleep(5)
    assert machines.together("a", "b") == number
    assert [event["event"] for name in "ab" for event in machines[name].events()] == ["in", "in"]
    machines.start("c", environment={"EBB_PLANNED_WORKERS": "3"})
    assert machines.together("a", "b", "c") == number + 1


def test_machines_meet_again_while_nobody_answers_dns(on_own_etcd: Machines, own_etcd: Server) -> None:
    machines = on_own_etcd
    machines.endpoint = f"localhost:{own_etcd.port}"
    machines.environment["EBB_PLANNED_WORKERS"] = "3"
    for name in "abc":
        machines.start(name)
    number = machines.together("a", "b", "c")
    for name in "abc":
        machines[name].signal(signal.SIGUSR1)
    own_etcd.kill()  # and each connection to it ends
    own_etcd.start()
    machines["a"].kill()
    assert machines.together("b", "c") == number + 1
    assert machines["b"].last()["addresses"]["localhost"][0] == "127.0.0.1", "for its workers"
    machines.start("d")  # on a machine that finds it
    assert machines.together("b", "c", "d") == number + 2


def test_machines_wait_for_an_etcd_that_is_not_there_yet(on_own_etcd: Machines, own_etcd: Server) -> None:
    machines = on_own_etcd
    own_etcd.kill()
    machines.start("a")
    machines.start("b")
    log = machines.folder / "a.log"
    until("told", lambda: log.exists() and "waiting for etcd: etcd does not answer" in log.read_text(), 20)
    own_etcd.start()
    machines.together("a", "b")


def test_etcd_loses_its_data(on_own_etcd: Machines, own_etcd: Server) -> None:
    machines = on_own_etcd
    output = machines.folder / "output"
    machines.environment["EBB_OUTPUT_DIR"] = str(output)
    machines.start("a")
    machines.start("b")
    number = machines.together("a", "b")

    def lose() -> None:
        own_etcd.kill()
        own_etcd.lose_data()
        own_etcd.start()

    lose()
    assert until("met again", lambda: machines.together("a", "b") > number)
    number = machines.together("a", "b")

    for name in "ab":
        machines[name].kill()
    lose()
    (output / "checkpoints").mkdir(exist_ok=True)
    (output / "checkpoints" / "g00041-s00000007-r0.json").touch()
    machines.start("c")
    machines.start("d")
    assert machines.together("c", "d") == 42, "above all that the files know of"
    assert [path.name for path in (output / "generations").iterdir()] == ["00042"]


def test_a_closed_job_stays_closed(machines: Machines) -> None:
    machines.start("a")
    machines.together("a")
    machines["a"].leave()
    other = handler(machines.endpoint, **machines.settings)
    assert not other.is_closed()
    assert other.shutdown()
    assert other.is_closed()
    late = machines.start("b")
    until("told", lambda: late.last()["event"] == "closed", 20)
    assert "is over: closed by 127.0.0.1" in late.last()["text"]


def test_nothing_stays_but_for_a_week(machines: Machines, etcd: Server) -> None:
    machines.start("a")
    machines.together("a")
    machines["a"].leave()
    client = etcd.client()

    def keys() -> list[Item]:
        return [item for item in client.list("/ebb/")[0] if "nothing_stays" in item.key]  # other tests share this etcd

    left = keys()
    assert [item.key.rpartition("/")[2] for item in left if "/left/" not in item.key] == ["generation"]
    until("a leaver's word is gone", lambda: not [item for item in keys() if "/left/" in item.key], 20)
    left = [item for item in left if item.lease and item.key.endswith("generation")]
    assert 6 * 24 * 3600 < client.keep_alive(left[0].lease) <= 7 * 24 * 3600
