"""Credentials that end while `logs -f` and a watch go on: nothing is lost, nothing comes twice, nobody has to log in again."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from ebb.client.jobs.watch import states
from ebb.client.logs import follow_logs
from ebb.client.logs.lines import Line
from ebb.kube import PODS, Kube
from tests.cli.world import NS, elastic_job, worker_pod
from tests.client.expiring import serving

WAYS = {"10-minute tokens in a file": "file", "60-second credentials of a command": "exec"}
LINES, EVERY = 400, 25


class Sink:
    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []
        self.notes: list[str] = []

    def line(self, worker: int, line: Line) -> None:
        self.lines.append((worker, line.text))

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(autouse=True)
def _haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses between two attempts, a hundredth as long."""
    monkeypatch.setattr("ebb.client.jobs.watch.RETRY_SECONDS", (0.01,))
    monkeypatch.setattr("ebb.client.logs.pod.RECHECK_SECONDS", 0.01)
    monkeypatch.setattr("ebb.client.logs.follow.RECHECK_SECONDS", 0.02)
    monkeypatch.setattr("ebb.client.logs.follow.SETTLE_SECONDS", 0.0)


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not done():  # noqa: ASYNC110 - what is waited for lies on both sides of a socket
            await asyncio.sleep(0.005)


def write_line(number: int) -> str:
    """Ten lines have one second, as a program that prints much."""
    return f"2026-11-21T12:{number // 600:02}:{number // 10 % 60:02}.{number % 10}00000000Z line {number}"


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_followed_log_outlives_its_credentials(tmp_path: Path, way: str) -> None:
    pods, sink = [worker_pod(0), worker_pod(1)], Sink()
    async with serving(tmp_path, way) as server, Kube.connect(str(server.kubeconfig)) as kube:
        for item in (elastic_job(), *pods):
            server.put(item)
        following = asyncio.create_task(follow_logs(kube, NS, "digits", sink))
        await until(lambda: len(server.connections) == 4)  # two watches, two logs
        for number in range(LINES):
            server.print(pods[number % 2], write_line(number))
            if number % EVERY == EVERY - 1:  # while some of them are on their way
                server.expire(cut=number // EVERY % 2 == 0)
                await until(lambda: len(sink.lines) == number + 1)  # noqa: B023 - awaited here
            if number == LINES // 2:  # worker 1 is lost and comes again, just when nobody's token is valid
                await until(lambda: len(sink.lines) == LINES // 2 + 1)
                server.expire(cut=True)
                server.remove(pods[1])
                pods[1] = worker_pod(1, uid="another")
                server.put(pods[1])
            await asyncio.sleep(0)
        await until(lambda: len(sink.lines) >= LINES)
        server.expire(cut=True)
        server.put(elastic_job(state="Succeeded"))
        for pod in pods:
            server.end_log(pod)
            server.put(
                worker_pod(int(pod["metadata"]["labels"]["replica-index"]), uid=pod["metadata"]["uid"], state="terminated")
            )
        assert (await asyncio.wait_for(following, 20)).state == "finished"
    assert sorted(sink.lines, key=lambda line: int(line[1].split()[1])) == [
        (number % 2, f"line {number}") for number in range(LINES)
    ]
    assert server.cut > LINES // EVERY // 2
    assert server.refused > LINES // EVERY // 2
    for worker in (0, 1):
        ours = [int(text.split()[1]) for whose, text in sink.lines if whose == worker]
        assert ours == sorted(ours)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_watch_outlives_its_credentials(tmp_path: Path, way: str) -> None:
    """Every state that lasts is seen, in order; who has a valid token is never told that anything was wrong."""
    seen: list[list[str]] = []
    async with serving(tmp_path, way) as server, Kube.connect(str(server.kubeconfig)) as kube:

        async def watch() -> None:
            async for current in states(kube, PODS, NS):
                seen.append(sorted(pod["metadata"]["name"] for pod in current.values()))

        watching = asyncio.create_task(watch())
        for number in range(20):
            await until(lambda: bool(seen) and len(seen[-1]) == number)  # noqa: B023 - awaited before the next
            server.expire(cut=number % 2 == 0)
            server.put(worker_pod(number))
        await until(lambda: len(seen[-1]) == 20)
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching
    sizes = [len(names) for names in seen]
    assert sorted(set(sizes)) == list(range(21))
    assert sizes == sorted(sizes)
    assert server.refused >= 10


async def test_a_token_that_nobody_renews_ends_in_a_sentence(tmp_path: Path) -> None:
    async with serving(tmp_path, "file") as server, Kube.connect(str(server.kubeconfig)) as kube:
        server.put(elastic_job())
        server._token = "known to nobody"
        with pytest.raises(Exception, match="Unauthorized"):
            await follow_logs(kube, NS, "digits", Sink())


def test_the_server_refuses_who_has_an_old_token(tmp_path: Path) -> None:
    """Else this file would show nothing."""

    async def ask() -> tuple[int, int]:
        async with serving(tmp_path, "file") as server, Kube.connect(str(server.kubeconfig)) as kube:
            await kube.list(PODS, NS)
            before = server.refused
            server.expire(cut=False)
            await kube.list(PODS, NS)
            return before, server.refused

    assert asyncio.run(ask()) == (0, 1)
