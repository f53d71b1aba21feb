"""The page over HTTP: documents, JSON, the stream, whoever comes and goes. Who is let in: test_guard.py."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ebb.api.contract import ENV_OUTPUT_DIR
from ebb.cli.ui.server import STATIC
from ebb.client.files.transfer import gateway
from tests.cli.ui.served import EVERY, Files, Page, served
from tests.cli.ui.test_pages import of_sweep
from tests.cli.world import FakeKube, elastic_job, platform_map, session, worker_pod
from tests.client.report.html import read
from tests.reached import ebb_of as reached_ebb
from tests.reached import reached


@pytest.mark.parametrize(
    ("path", "title", "status"),
    [
        ("", "Jobs - Ebb", 200),
        ("jobs/scan-a", "scan-a - Ebb", 200),
        ("jobs/none", "none - Ebb", 404),
        ("sweeps/scan", "scan - Ebb", 200),
        ("sweeps/none", "none - Ebb", 404),
        ("jobs/%3Cimg%3E", "<img> - Ebb", 404),
    ],
)
async def test_documents_are_whole_without_their_script(path: str, title: str, status: int) -> None:
    async with served(FakeKube(platform_map(), of_sweep("scan-a", 0.5, lr="1"))) as page:
        answer = await page.get(path)
        html = read(await answer.text())
        assert (answer.status, html.all("title")[0].words) == (status, title)
        assert html.all("main")[0].all("h1")
        for link in [each.attributes.get("href") or each.attributes["src"] for each in (*html.all("link"), *html.all("script"))]:
            assert (await page.client.get(link)).status == 200
        stream = await page.client.get(html.all("main")[0].attributes["data-stream"])
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        stream.close()


@pytest.mark.parametrize("name", STATIC)
async def test_the_files_of_the_page(name: str) -> None:
    async with served(FakeKube(platform_map())) as page:
        answer = await page.get(f"static/{name}")
        assert (answer.status, answer.content_type) == (200, STATIC[name][1])
        text = await answer.text()
        assert text
        assert "://" not in text.replace("http://www.w3.org/2000/svg", "")  # nothing from anywhere else


def printed(kube: FakeKube, *words: str) -> Any:
    from typer.testing import CliRunner

    from ebb.cli.app import app

    return json.loads(CliRunner().invoke(app, [*words, "-o", "json"], obj=session(kube)).stdout)


def test_json_has_the_fields_of_the_cli() -> None:
    kube = FakeKube(platform_map(), of_sweep("scan-a", 0.5, lr="1"), worker_pod(0, job="scan-a"))

    async def ask() -> list[Any]:
        async with served(kube) as page:
            paths = ("api/overview", "api/jobs/scan-a", "api/sweeps/scan")
            return [await (await page.get(path)).json() for path in paths]

    overview, job, sweep = asyncio.run(ask())
    assert overview["jobs"] == printed(kube, "list")["jobs"]
    assert overview["gpus"] == printed(kube, "gpus")
    assert [each["name"] for each in overview["sweeps"]] == ["scan"]
    status = printed(kube, "status", "scan-a")
    assert {key: job[key] for key in status} == status
    assert job["events"] == printed(kube, "events", "scan-a")["events"]
    assert sweep["sweep"] == printed(kube, "sweep", "show", "scan")["sweep"]
    assert overview["trouble"] == ""


async def test_json_of_what_is_not_there() -> None:
    async with served(FakeKube(platform_map())) as page:
        assert (await page.get("api/jobs/none")).status == 404
        assert (await page.get("api/sweeps/none")).status == 404


async def until(events: AsyncIterator[tuple[str, Any]], kind: str, text: str) -> Any:
    """The next of a kind that holds a text."""
    async with asyncio.timeout(10):
        async for found, data in events:
            if found == kind and text in json.dumps(data, ensure_ascii=False):
                return data
    raise AssertionError("the stream has ended")


async def test_a_stream_sends_the_body_only_when_it_has_changed() -> None:
    kube = FakeKube(platform_map(), elastic_job(state="Succeeded"))
    job = kube._objects["/apis/elastic.pytorch.org/v1alpha1/namespaces/elastic-job/elasticjobs/digits"]
    job["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"  # so old that its age stays
    async with served(kube) as page, page.stream() as events:
        _, first = await anext(events)
        assert "digits" in first["body"]
        for _ in range(3):
            kind, data = await anext(events)
            assert (kind, set(data)) == ("page", {"at"})
        kube.put(elastic_job("another"))
        assert "digits" in (await until(events, "page", "another"))["body"]


async def test_an_api_server_that_is_away_is_said_and_that_it_is_back() -> None:
    kube = FakeKube(platform_map(), elastic_job())
    async with served(kube) as page, page.stream() as events:
        await anext(events)
        kube.broken = True
        body = (await until(events, "page", "Trying again"))["body"]
        assert "no answer. This is what was known" in body
        assert "digits" in body
        assert (await page.get()).status == 200
        kube.broken = False
        assert "Trying again" not in (await until(events, "page", "body"))["body"]


async def test_a_page_opened_while_the_api_server_is_away() -> None:
    kube = FakeKube(platform_map(), elastic_job())
    kube.broken = True
    async with served(kube) as page:
        answer = await page.get()
        assert (answer.status, "no answer. Trying again." in await answer.text()) == (503, True)
        assert (await (await page.get("api/overview")).json())["trouble"] == "no answer"
        async with page.stream("jobs/digits/stream") as events:
            await until(events, "page", "Trying again")
            kube.broken = False
            await until(events, "page", "<h1>digits")


async def test_the_log_of_a_job_comes_line_by_line_and_as_text() -> None:
    pod, evil = worker_pod(0), "<b>loss</b> 0.5"
    kube = FakeKube(platform_map(), elastic_job(), pod)
    kube.write(pod, f"2026-11-21T12:01:00Z {evil}")
    async with served(kube) as page, page.stream("jobs/digits/stream") as events:
        first = await until(events, "log", "fresh")
        seen = first if evil in json.dumps(first) else await until(events, "log", evil)
        [line] = [each for each in seen["lines"] if each["worker"] == 0]
        assert (line["text"], line["time"]) == (evil, "2026-11-21T12:01:00Z")
        kube.write(pod, "2026-11-21T12:01:01Z second")
        later = await until(events, "log", "second")
        assert later["fresh"] is False
        assert [each["text"] for each in later["lines"]] == ["second"]
        async with page.stream("jobs/digits/stream") as others:  # whoever comes later gets all of it
            again = await until(others, "log", "second")
            assert again["fresh"] is True
            assert {evil, "second"} <= {each["text"] for each in again["lines"]}


async def test_curves_come_with_the_metric_lines() -> None:
    files = Files()
    kube = FakeKube(platform_map(), elastic_job())
    async with served(kube, open_files=files.open) as page, page.stream("jobs/digits/stream") as events:
        await until(events, "page", "has written no metrics.jsonl")
    files.text = b"".join(b'{"time": 1795262400.%d, "step": %d, "loss": 0.5}\n' % (step, step) for step in range(1, 5))
    async with served(kube, open_files=files.open) as page, page.stream("jobs/digits/stream") as events:
        assert "Loss against time" in (await until(events, "page", "<figure"))["body"]


async def test_a_job_of_the_same_name_is_another_one() -> None:
    pod = worker_pod(0)
    kube = FakeKube(platform_map(), elastic_job(), pod)
    kube.write(pod, "2026-11-21T12:01:00Z of the first")
    async with served(kube) as page, page.stream("jobs/digits/stream") as events:
        await until(events, "log", "of the first")
        kube.remove(pod)
        kube.remove(elastic_job())
        await until(events, "page", "it was deleted")
        job = elastic_job()
        job["metadata"]["uid"] = "uid-second"
        kube.put(job)
        again = await until(events, "log", "fresh")
        assert again["fresh"] is True
        assert "of the first" not in json.dumps(again)


async def settled(page: Page) -> bool:
    """Nobody watches any more."""
    async with asyncio.timeout(5):
        while page.live._reading is not None or page.live._feeds:  # noqa: ASYNC110 - the server's side of it is on trial
            await asyncio.sleep(EVERY)
    return True


async def test_a_viewer_that_leaves_ends_the_reading() -> None:
    kube = FakeKube(platform_map(), elastic_job())
    async with served(kube) as page:
        async with page.stream("jobs/digits/stream") as one, page.stream() as other:
            await until(one, "log", "fresh")
            await anext(other)
        assert await settled(page)
        before = len(kube.sent)
        await asyncio.sleep(10 * EVERY)
        assert len(kube.sent) == before


async def test_many_viewers_are_one_read() -> None:
    kube = FakeKube(platform_map(), elastic_job())
    async with served(kube) as page:
        page.live._every = 3600.0
        streams = [page.stream() for _ in range(10)]
        opened = [await stream.__aenter__() for stream in streams]
        for events in opened:
            await anext(events)
        assert len(kube.sent) == 4
        for stream in streams:
            await stream.__aexit__(None, None, None)


async def test_the_end_of_the_server_ends_the_streams() -> None:
    async with served(FakeKube(platform_map(), elastic_job())) as page:
        async with page.stream("jobs/digits/stream") as events:
            await anext(events)
            async with asyncio.timeout(5):  # the server would be patient for longer
                await page.client.server.close()
                async for _ in events:
                    pass
        assert await settled(page)


async def test_through_a_real_gateway(tmp_path: Path) -> None:
    folder = tmp_path / "output" / "digits-1"
    job = elastic_job()
    container = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": ENV_OUTPUT_DIR, "value": str(folder)}]
    async with reached(tmp_path, job) as kube:
        folder.mkdir()
        metrics = folder / "metrics.jsonl"
        metrics.write_bytes(b'{"time": 1795262401, "step": 1, "loss": 0.5}\n')
        log = folder / "logs" / "worker-0" / "2026-11-21T12-00-00Z.gone.0.log"
        log.parent.mkdir(parents=True)
        log.write_text("2026-11-21T12:01:00Z 0.0.out from a machine that is gone\n")
        async with served(kube, open_files=gateway, ebb=reached_ebb(kube)) as page:
            async with page.stream("jobs/digits/stream") as events:
                await until(events, "log", "from a machine that is gone")
                await until(events, "page", "From 0.5 to 0.5 in 1 steps.")
                with metrics.open("ab") as file:
                    file.write(b'{"time": 1795262402, "step": 2, "loss": 0.25}\n')
                await until(events, "page", "From 0.5 to 0.25 in 2 steps.")
            assert await settled(page)


async def test_a_mistake_of_ours_ends_the_streams_and_is_not_hidden(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_: Any) -> Any:
        raise RuntimeError("a bug")

    async with served(FakeKube(platform_map())) as page:
        page.live._read_platform = broken
        async with page.stream() as events, asyncio.timeout(5):
            with pytest.raises(aiohttp.ClientPayloadError):
                async for _ in events:
                    pass
    assert "a bug" in caplog.text
