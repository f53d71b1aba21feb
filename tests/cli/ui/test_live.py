"""The platform is read once for all who watch, at most every two seconds, and not while nobody does. In fake time."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from ebb.cli.ui.feed import AGAIN_SECONDS, LINES, JobFeed, plain
from ebb.cli.ui.live import READ_SECONDS, RETRY_SECONDS, Live, read_snapshot
from ebb.kube import Object
from tests import fake_time
from tests.cli.test_looking import number_event
from tests.cli.ui.served import Files, ebb_of
from tests.cli.world import FakeKube, elastic_job, platform_map, worker_pod
from tests.client.report import story
from tests.client.timeline.test_timeline import event

JOBS = "/apis/elastic.pytorch.org/v1alpha1/namespaces/elastic-job/elasticjobs"


def reads(kube: FakeKube) -> int:
    return Counter(path for _, path in kube.sent)[JOBS]


def test_a_hundred_jobs_are_four_requests() -> None:
    kube = FakeKube(platform_map(), *(elastic_job(f"job-{index}") for index in range(100)))
    found = asyncio.run(read_snapshot(ebb_of(kube)))
    assert len(found.jobs) == 100
    assert len(kube.sent) <= 4


def test_one_read_for_all_who_watch_and_none_for_nobody() -> None:
    kube = FakeKube(platform_map(), elastic_job())

    async def watch() -> None:
        live = Live(ebb_of(kube))
        await asyncio.sleep(60)
        assert reads(kube) == 0
        async with AsyncExitStack() as stack:
            for _ in range(5):
                await stack.enter_async_context(live.watching())
            await asyncio.sleep(60)
            assert 60 / READ_SECONDS <= reads(kube) <= 60 / READ_SECONDS + 1
        before = len(kube.sent)
        await asyncio.sleep(60)
        assert len(kube.sent) == before
        async with live.watching():
            await asyncio.sleep(1)
        assert len(kube.sent) > before

    fake_time.run(watch())


def test_whoever_comes_a_moment_later_gets_what_was_read() -> None:
    kube = FakeKube(platform_map(), elastic_job())

    async def ask() -> None:
        live = Live(ebb_of(kube))
        found = await asyncio.gather(*(live.fresh() for _ in range(20)))
        await asyncio.sleep(READ_SECONDS - 0.1)
        assert (await live.fresh()) is found[0]
        assert reads(kube) == 1
        await asyncio.sleep(0.2)
        assert (await live.fresh()) is not found[0]

    fake_time.run(ask())


def test_a_platform_that_is_away_leaves_what_was_known_and_is_asked_again() -> None:
    kube = FakeKube(platform_map(), elastic_job())

    async def watch() -> None:
        live = Live(ebb_of(kube))
        async with live.watching():
            await asyncio.sleep(1)
            before = live.snapshot
            kube.break_connections()
            await asyncio.sleep(READ_SECONDS)
            assert live.trouble == "no answer"
            assert live.snapshot is before is not None
            version = live.version
            kube.heal()
            await asyncio.sleep(RETRY_SECONDS)
            assert live.trouble == ""
            assert live.snapshot is not before
            assert live.version > version

    fake_time.run(watch())


async def until_read(files: Files, times: int) -> None:
    while len(files.starts) < times:  # noqa: ASYNC110 - in fake time
        await asyncio.sleep(0.1)


def fed(kube: FakeKube, job: Object, files: Files) -> Live:
    kube.put(job)
    return Live(ebb_of(kube), open_files=files.open)


def test_of_the_metrics_only_what_has_come_is_read() -> None:
    lines = [b'{"time": %d, "step": %d, "loss": 0.5}\n' % (story.BEGIN + step, step) for step in range(1, 5)]
    files = Files(b"".join(lines[:2]) + lines[2][:9])

    async def watch() -> None:
        live = fed(FakeKube(platform_map()), elastic_job(), files)
        async with live.watching(), live.feeding(elastic_job()) as one, live.feeding(elastic_job()) as other:
            assert one is other
            await until_read(files, 1)
            assert (one.training.lines, one.notes) == (2, ())
            version, files.text = live.version, b"".join(lines)
            await until_read(files, 2)
            await asyncio.sleep(0)
            assert (one.training.lines, one.training.unreadable) == (4, 0)
            assert live.version > version
        assert files.starts[:2] == [0, len(lines[0]) * 2 + 9]
        count = len(files.starts)
        await asyncio.sleep(60)
        assert len(files.starts) == count

    fake_time.run(watch())


def test_metrics_that_are_not_there_yet_are_a_note_until_they_come() -> None:
    files = Files(None)

    async def watch() -> None:
        live = fed(FakeKube(platform_map()), elastic_job(), files)
        async with live.watching(), live.feeding(elastic_job()) as feed:
            await until_read(files, 1)
            await asyncio.sleep(0.1)
            assert "has written no metrics.jsonl" in feed.notes[0]
            files.text = b'{"time": 1.0, "step": 1}\n'
            await asyncio.sleep(AGAIN_SECONDS + 1)
            assert (feed.training.lines, feed.notes) == (1, ())

    fake_time.run(watch())


def test_a_job_that_is_over_is_hardly_read() -> None:
    files = Files(b'{"time": 1.0, "step": 1}\n')

    async def watch() -> None:
        job = elastic_job(state="Succeeded")
        live = fed(FakeKube(platform_map()), job, files)
        async with live.watching(), live.feeding(job):
            await asyncio.sleep(59)
        assert len(files.starts) == 1

    fake_time.run(watch())


def test_events_about_the_job_and_its_log_are_in_the_feed() -> None:
    pod, about = worker_pod(0), event("Started", "", at="12:00:51", pod=0)
    other = {**about, "involvedObject": {"kind": "Pod", "name": "another-worker-0"}}
    kube = FakeKube(platform_map(), elastic_job(), pod, number_event(about, 1), number_event(other, 2))
    kube.write(pod, *(f"2026-11-21T12:01:{index:02}Z line {index}" for index in range(3)))

    async def watch() -> JobFeed:
        live = Live(ebb_of(kube), open_files=Files().open)
        async with live.watching(), live.feeding(elastic_job()) as feed:
            await asyncio.sleep(1)
            kube.write(pod, "2026-11-21T12:01:03Z \x1b[32mgreen\x1b[0m")
            await asyncio.sleep(2)
            return feed

    feed = fake_time.run(watch())
    assert [each["reason"] for each in feed.told] == ["Started"]
    assert [line.text for line in feed.lines if line.worker == 0] == ["line 0", "line 1", "line 2", "green"]
    assert any("output volume cannot be read" in line.text for line in feed.lines if line.worker is None)
    assert [line.number for line in feed.lines] == list(range(feed.numbered))


def test_of_a_long_log_the_end_is_kept() -> None:
    async def fill() -> JobFeed:
        feed = JobFeed(ebb_of(FakeKube()), elastic_job(), lambda *, page: None, every=1.0, open_files=Files().open)
        await feed.close()
        for index in range(LINES + 10):
            feed.note(str(index))
        return feed

    feed = fake_time.run(fill())
    assert (len(feed.lines), feed.numbered) == (LINES, LINES + 10)
    assert feed.lines[-1].text == str(LINES + 9)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("plain", "plain"),
        ("\x1b[1;31mred\x1b[0m and \x1b]0;title\x07more", "red and more"),
        (" 10%|#\r 20%|##\r", " 20%|##"),
        ("a" * 3000, "a" * 2000 + "…"),
    ],
)
def test_a_line_is_what_a_terminal_would_leave(text: str, left: str) -> None:
    assert plain(text) == left
