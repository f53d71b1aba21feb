"""The fence on real etcd servers, of each version that we promise to work with; and a job of two machines that uses it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebb.elastic.checkpoint import EtcdFence, FenceUnreachable, Stale
from ebb.elastic.checkpoint.register import EtcdRegister
from ebb.elastic.checkpoint.state import dump
from ebb.elastic.contract import EXIT_FINISHED
from tests.elastic import images
from tests.elastic.checkpoint.making import both, files, folder, found_step, state
from tests.elastic.machines import Job, kill_with_children, until
from tests.elastic.rendezvous.servers import VERSIONS, Server, built

pytestmark = pytest.mark.e2e
MEMBERSHIP = "/ebb/run/generation"


@pytest.fixture(params=sorted(VERSIONS))
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    server = Server(built(request.param), tmp_path)
    server.start()
    yield server
    server.kill()


def fence(server: Server, generation: int) -> EtcdFence:
    register = EtcdRegister(server.client(timeout_seconds=1.0))  # type: ignore[arg-type]
    return EtcdFence(register, generation=generation, membership=MEMBERSHIP, folder="0123")


def form(server: Server, generation: int) -> None:
    server.client().put(MEMBERSHIP, json.dumps({"number": generation, "members": ["a"]}).encode())


def test_commit_stale_restart_and_lost_data(server: Server, tmp_path: Path) -> None:
    form(server, 3)
    place, ours = folder(tmp_path), fence(server, 3)
    place.prepare(3)
    place.save(dump(state(10)), ours, step=10)
    assert found_step(place, ours.newest()) == 10

    server.kill()
    candidate = place.write(dump(state(20)), generation=3, step=20)
    with pytest.raises(FenceUnreachable):
        place.commit(candidate, ours)
    assert found_step(place) == 10
    server.start()
    place.commit(candidate, ours)
    assert found_step(place, ours.newest()) == 20

    form(server, 4)
    with pytest.raises(Stale):
        place.save(dump(state(900)), ours, step=900)
    newer = fence(server, 4)
    assert newer.newest() == "g00003-s00000020-r0"
    newer.commit(place.write(dump(state(21)), generation=4, step=21))  # killed before the rename
    assert found_step(place, fence(server, 4).newest()) == 21

    server.kill()
    server.lose_data()
    server.start()
    with pytest.raises(FenceUnreachable, match="has lost its data"):
        place.save(dump(state(22)), newer, step=22)
    form(server, 5)
    again = fence(server, 5)
    assert (again.newest(), found_step(place, again.newest())) == (None, 21)
    with pytest.raises(Stale):
        place.save(dump(state(23)), newer, step=23)
    place.save(dump(state(22)), again, step=22)
    assert files(tmp_path) == both("g00003-s00000020-r0", "g00004-s00000021-r0", "g00005-s00000022-r0")


def test_the_name_is_gone_a_week_after_the_last_commit_and_one_lease_is_enough(server: Server, tmp_path: Path) -> None:
    form(server, 3)
    place, ours = folder(tmp_path), fence(server, 3)
    place.prepare(3)
    leases = set()
    for step in (10, 20, 30):
        place.save(dump(state(step)), ours, step=step)
        item = server.client().get("/ebb/checkpoints/0123")
        assert item is not None
        leases.add(item.lease)
    assert len(leases) == 1
    [lease] = leases
    assert 7 * 24 * 3600 - 60 < server.client().keep_alive(lease) <= 7 * 24 * 3600


def test_a_job_commits_in_etcd_and_resumes_from_what_etcd_names(tmp_path: Path) -> None:
    server = Server(built("3.6"), tmp_path)
    server.start()
    data = images.make(tmp_path / "images", train=40)
    arguments = ["-m", "trainer", "--data", str(data), "--arch", "resnet18", "--image-size", "32", "--global-batch", "24"]
    arguments += ["--epochs", "6", "--log-every", "1", "--min-step-seconds", "0.2", "--checkpoint-min-seconds", "1"]
    job = Job(server.endpoint, tmp_path / "output", arguments)
    try:
        machine = job.start(planned=1)
        [key] = until("a commit", lambda: server.client().list("/ebb/checkpoints/")[0])
        assert key.key.rpartition("/")[2] == json.loads((tmp_path / "output/owner.json").read_text())["id"]
        kill_with_children(machine)
        named = json.loads(server.client().list("/ebb/checkpoints/")[0][0].value)
        again = job.start(planned=1)
        assert again.wait(300) == EXIT_FINISHED
        words = f"resumed after step {named['step']} of generation {named['generation']}"
        assert words in (tmp_path / "output/machine1.log").read_text()
    finally:
        job.stop_all()
        server.kill()
        print(job.logs())
