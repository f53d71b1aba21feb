"""`ebb logs` with the output volume: lost pods are there, each line once, and what is being written is followed to its end."""

import asyncio
import io
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ebb.cli.terminal import Writer
from ebb.client.errors import ClientError, Missing
from ebb.client.files.transfer import FileEntry
from ebb.client.jobs import watch
from ebb.client.logs import Choice, follow, follow_logs, pod, print_logs, volume
from ebb.client.logs.volume import Shelf
from ebb.kube import Object
from tests.cli.world import NS, FakeKube, elastic_job, worker_pod

LOGS = "/mnt/output/elastic-job/digits-uid-digi/logs"
START = "20261121T1200{second:02}-000000000Z"


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "RETRY_SECONDS", (0.002,))
    for module in (follow, pod, volume):
        monkeypatch.setattr(module, "RECHECK_SECONDS", 0.005)
        monkeypatch.setattr(module, "DRAIN_SECONDS", 0.05)
    monkeypatch.setattr(volume, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(follow, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(follow, "SETTLE_SECONDS", 0.1)


class Folder:
    """The job's folder on the volume, and launchers that write there. `away`: the gateway cannot be reached."""

    def __init__(self, path: Path) -> None:
        self.path, self.away = path, False
        self.read_bytes = 0

    def write(self, worker: int, uid: str, *lines: str, second: int = 0, part: int = 0, torn: str = "") -> None:
        """`lines`: second, tag and text, as `1.5 0.0.out a`."""
        folder = self.path / "logs" / f"worker-{worker}"
        folder.mkdir(parents=True, exist_ok=True)
        text = "".join(f"2026-11-21T12:00:{float(line.split()[0]):012.9f}Z {line.partition(' ')[2]}\n" for line in lines)
        with (folder / f"{START.format(second=second)}.{uid}.{part:06}.log").open("a") as file:
            file.write(text + torn)

    async def list(self, path: str, *, recursive: bool) -> Sequence[FileEntry]:
        self._reach()
        assert path == LOGS
        if not (self.path / "logs").exists():
            raise Missing(path)
        found = [(each.relative_to(self.path / "logs"), each.stat()) for each in (self.path / "logs").rglob("*.log")]
        return [FileEntry(name=str(name), kind="file", size=stat.st_size, modified_ns=stat.st_mtime_ns) for name, stat in found]

    async def read(self, path: str, start: int) -> AsyncGenerator[bytes, None]:
        self._reach()
        try:
            data = Path(path.replace(LOGS, f"{self.path}/logs")).read_bytes()[start:]
        except FileNotFoundError as error:
            raise Missing(path) from error
        self.read_bytes += len(data)
        for place in range(0, len(data), 50):
            yield data[place : place + 50]
            await asyncio.sleep(0)

    def _reach(self) -> None:
        if self.away:
            raise ClientError("the gateway does not answer")


@pytest.fixture
def files(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def writer() -> Writer:
    return Writer(out=io.StringIO(), notes=io.StringIO())


def lines(found: Writer) -> list[str]:
    assert isinstance(found.out, io.StringIO)
    return found.out.getvalue().splitlines()


def notes(found: Writer) -> str:
    assert isinstance(found.notes, io.StringIO)
    return found.notes.getvalue()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the condition is text that another task prints
            await asyncio.sleep(0.001)


def end(kube: FakeKube, *pods: Object) -> None:
    for each in pods:
        kube.put({**each, "status": worker_pod(0, state="terminated")["status"]})
        kube.close_log(each)
    kube.put(elastic_job(state="Succeeded"))


async def printed(kube: FakeKube, files: Folder, choice: Choice = Choice()) -> list[str]:  # noqa: B008 - it is frozen
    found = writer()
    await print_logs(kube, NS, "digits", found, choice=choice, files=files)
    return lines(found)


async def test_a_pod_that_has_a_file_is_read_there_and_nowhere_else(files: Folder) -> None:
    zero, one = worker_pod(0, uid="u0"), worker_pod(1, uid="u1")
    kube = FakeKube(elastic_job(), zero, one)
    kube.write(zero, "2026-11-21T12:00:01.1Z same", "2026-11-21T12:00:01.2Z same")
    kube.write(one, "2026-11-21T12:00:02.000000000Z has no file")
    files.write(0, "u0", "1 0.0.out same", "1 0.0.out same", "3 -.-.err [launcher] x")
    assert await printed(kube, files) == ["w0 r0 | same", "w0 r0 | same", "w1 | has no file", "w0 | [launcher] x"]


async def test_lost_pods_stay_in_the_order_of_time(files: Folder) -> None:
    kube = FakeKube(elastic_job(), worker_pod(0, uid="new"))
    files.write(0, "old", "1 0.0.out a", "4 0.0.out d", torn="2026-11-21T12:00:05.0Z 0.0.out never wri")
    files.write(0, "new", "6 1.0.out f", second=5)
    files.write(1, "gone", "2 1.0.out b", "3 1.0.err c", second=1)
    assert await printed(kube, files) == ["w0 r0 | a", "w1 r1 | b", "w1 r1 | c", "w0 r0 | d", "w0 r1 | f"]
    assert await printed(kube, files, Choice(worker=0)) == ["w0 r0 | a", "w0 r0 | d", "w0 r1 | f"]
    assert await printed(kube, files, Choice(rank=1)) == ["w1 r1 | b", "w1 r1 | c", "w0 r1 | f"]
    assert await printed(kube, files, Choice(lost=True)) == ["w0 r0 | a", "w1 r1 | b", "w1 r1 | c", "w0 r0 | d"]


async def test_parts_follow_each_other_and_half_a_line_is_written_again(files: Folder) -> None:
    files.write(0, "u", "1 0.0.out a", torn="2026-11-21T12:00:02.0Z 0.0.out b")
    files.write(0, "u", "2 0.0.out b", part=1)
    files.write(0, "u", "3 0.0.out c", second=9)  # the container was started again
    assert await printed(FakeKube(elastic_job()), files) == ["w0 r0 | a", "w0 r0 | b", "w0 r0 | c"]


@pytest.mark.parametrize(("tail", "wanted"), [(0, ""), (1, "h"), (3, "fgh"), (4, "efgh"), (7, "bcdefgh"), (50, "abcdefgh")])
async def test_a_tail_goes_back_as_far_as_it_must(tail: int, wanted: str, files: Folder) -> None:
    files.write(0, "old", "1 0.0.out a", "2 0.0.out b", "3 0.0.out c")
    for part, text in enumerate("defgh"):
        files.write(0, "new", f"{4 + part} 0.0.out {text}", second=3, part=part)
    found = await printed(FakeKube(elastic_job(), worker_pod(0, uid="new")), files, Choice(tail=tail))
    assert found == [f"w0 r0 | {text}" for text in wanted]


async def test_files_that_are_too_old_are_not_read(files: Folder) -> None:
    for part, text in enumerate("abc"):
        files.write(0, "u", f"{part} 0.0.out {text}", part=part)
    long_ago = datetime(2026, 11, 21, 11, 0, tzinfo=UTC).timestamp()
    for path in (files.path / "logs" / "worker-0").glob("*00000[01].log"):
        os.utime(path, (long_ago, long_ago))
    since = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
    assert await printed(FakeKube(elastic_job()), files, Choice(since=since)) == ["w0 r0 | c"]
    assert await printed(FakeKube(elastic_job()), files) == ["w0 r0 | a", "w0 r0 | b", "w0 r0 | c"]


async def test_without_the_volume_there_is_what_the_api_server_has_and_a_note(files: Folder) -> None:
    zero, found = worker_pod(0, uid="u0"), writer()
    kube = FakeKube(elastic_job(), zero)
    kube.write(zero, "2026-11-21T12:00:01Z a")
    files.away = True
    await print_logs(kube, NS, "digits", found, files=files)
    assert lines(found) == ["w0 | a"]
    assert "lines of workers that are gone are missing: the gateway does not answer" in notes(found)


async def test_ranks_of_a_pod_without_a_file_are_not_known(files: Folder) -> None:
    zero, found = worker_pod(0), writer()
    kube = FakeKube(elastic_job(), zero)
    kube.write(zero, "2026-11-21T12:00:01Z a")
    await print_logs(kube, NS, "digits", found, choice=Choice(rank=0), files=files)
    assert lines(found) == []
    assert notes(found).startswith("worker 0: its lines come from the API server, which does not know ranks")


async def test_nothing_at_all_is_said(files: Folder) -> None:
    with pytest.raises(Missing, match="digits has no worker 3 whose log can be read"):
        await printed(FakeKube(elastic_job()), files, Choice(worker=3))


async def test_following_across_lost_pods_shows_each_line_once(files: Folder) -> None:
    old, found = worker_pod(0, uid="old"), writer()
    kube = FakeKube(elastic_job(), old)
    files.write(0, "old", "1 0.0.out a")
    kube.write(old, "2026-11-21T12:00:01Z a")
    task = asyncio.create_task(follow_logs(kube, NS, "digits", found, files=files))
    await until(lambda: lines(found) == ["w0 r0 | a"])
    files.write(0, "old", "2 0.0.out b")
    await until(lambda: len(lines(found)) == 2)
    kube.remove(old)
    files.write(0, "old", "3 0.0.out last words, which took their time", torn="2026-11-2")
    new = worker_pod(0, uid="new")
    kube.put(new)
    kube.write(new, "2026-11-21T12:00:06Z d")
    files.write(0, "new", "6 0.0.out d", second=5)
    await until(lambda: len(lines(found)) == 4)
    files.write(0, "new", "7 0.0.out e", second=5, part=1)
    end(kube, new)
    await task
    assert sorted(lines(found)) == [f"w0 r0 | {text}" for text in ("a", "b", "d", "e", "last words, which took their time")]


async def test_a_gateway_that_is_away_for_a_while_costs_no_line(files: Folder) -> None:
    zero, found = worker_pod(0, uid="u"), writer()
    kube = FakeKube(elastic_job(), zero)
    files.write(0, "u", "1 0.0.out a")
    task = asyncio.create_task(follow_logs(kube, NS, "digits", found, files=files))
    await until(lambda: len(lines(found)) == 1)
    files.away = True
    files.write(0, "u", "2 0.0.out b")
    await asyncio.sleep(0.03)
    files.away = False
    files.write(0, "u", "3 0.0.out c")
    end(kube, zero)
    await task
    assert lines(found) == ["w0 r0 | a", "w0 r0 | b", "w0 r0 | c"]


async def test_a_new_pod_without_a_file_is_followed_through_the_api_server(files: Folder) -> None:
    zero, found = worker_pod(0, uid="u"), writer()
    kube = FakeKube(elastic_job())
    task = asyncio.create_task(follow_logs(kube, NS, "digits", found, files=files))
    kube.put(zero)
    kube.write(zero, "2026-11-21T12:00:01Z a")
    await until(lambda: lines(found) == ["w0 | a"])
    files.write(0, "u", "1 0.0.out a", "2 0.0.out b")  # too late: this pod is read from the API server, to its end
    kube.write(zero, "2026-11-21T12:00:02Z b")
    end(kube, zero)
    await task
    assert lines(found) == ["w0 | a", "w0 | b"]


async def test_a_pod_that_has_just_started_is_given_time_to_have_a_file(files: Folder) -> None:
    zero, found = worker_pod(0, uid="u"), writer()
    zero["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    kube = FakeKube(elastic_job(), zero)
    kube.write(zero, "2026-11-21T12:00:01Z a")
    task = asyncio.create_task(follow_logs(kube, NS, "digits", found, files=files))
    await until(lambda: any(path.endswith("pods") for _, path in kube.sent))
    files.write(0, "u", "1 0.0.out a")
    await until(lambda: lines(found) == ["w0 r0 | a"])
    end(kube, zero)
    await task
    assert lines(found) == ["w0 r0 | a"]


async def test_pods_that_came_and_went_unseen_are_shown(files: Folder) -> None:
    zero, found = worker_pod(0, uid="u"), writer()
    kube = FakeKube(elastic_job(), zero)
    files.write(0, "u", "1 0.0.out a")
    task = asyncio.create_task(follow_logs(kube, NS, "digits", found, files=files))
    await until(lambda: len(lines(found)) == 1)
    files.write(1, "unseen", "2 1.0.out x", second=1)
    await until(lambda: len(lines(found)) == 2)
    files.write(2, "late", "2 2.0.out y", second=1)
    end(kube, zero)
    await task
    assert sorted(lines(found)) == ["w0 r0 | a", "w1 r1 | x", "w2 r2 | y"]


async def test_following_reads_each_byte_once(files: Folder) -> None:
    files.write(0, "u", *(f"{second} 0.0.out line" for second in range(50)))
    shelf = Shelf(files, "/mnt/output/elastic-job/digits-uid-digi")
    await shelf.look()
    reading = shelf.reading("u")
    for _ in range(3):
        async for _ in reading.now():
            pass
    assert files.read_bytes == sum(path.stat().st_size for path in files.path.rglob("*.log"))
