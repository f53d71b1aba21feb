"""The page is for whoever has the address, in a browser on this machine, and for nobody else."""

import asyncio
from urllib.parse import urlsplit

import pytest

from ebb.cli.ui.guard import COOKIE, HEADERS
from ebb.cli.ui.server import serving
from tests.cli.ui.served import ebb_of, served
from tests.cli.world import FakeKube, elastic_job, platform_map

PATHS = (
    "", "jobs/digits", "sweeps/scan", "stream", "jobs/digits/stream", "sweeps/scan/stream", "api/overview", "api/jobs/digits",
    "api/sweeps/scan", "static/ui.js", "static/page.css",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
async def test_nothing_is_read_or_shown_without_the_address(path: str) -> None:
    kube = FakeKube(platform_map(), elastic_job())
    async with served(kube, cookie=False) as page:
        for given in ({}, {"token": "wrong"}, {"token": ""}, {"token": "\udcff".encode(errors="replace").decode()}):
            answer = await page.get(path, params=given)
            assert (answer.status, "digits" in await answer.text()) == (403, False)
        wrong = await page.get(path, headers={"Cookie": f"{COOKIE}=wrong"})
        assert wrong.status == 403
        elsewhere = await page.client.get(f"/{path}", headers={"Cookie": f"{COOKIE}={page.guard.token}"})
        assert elsewhere.status == 403
    assert kube.sent == []


async def test_the_address_becomes_a_cookie_that_scripts_other_sites_and_other_ports_do_not_get() -> None:
    async with served(FakeKube(platform_map()), cookie=False) as page:
        answer = await page.client.get(page.guard.opening)
        text = await answer.text()
        assert page.guard.token not in text
        assert f'content="0;url={page.guard.base}"' in text
        parts = answer.headers["Set-Cookie"].split("; ")
        assert parts[0] == f"{COOKIE}={page.guard.token}"
        assert {"HttpOnly", "SameSite=Strict", f"Path={page.guard.base}"} <= set(parts)
        assert (await page.get()).status == 200


async def test_each_run_has_an_address_of_its_own() -> None:
    async with served(FakeKube(platform_map())) as one, served(FakeKube(platform_map())) as other:
        assert one.guard.token != other.guard.token
        assert one.guard.base != other.guard.base
        assert len(one.guard.token) >= 43  # 256 bits


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "[::2]:80", "[", ""])
async def test_a_name_that_a_site_has_pointed_here_is_refused(host: str) -> None:
    async with served(FakeKube(platform_map())) as page:
        for path in (page.guard.base, page.guard.opening):
            answer = await page.client.get(path, headers={"Host": host})
            assert answer.status == 403
            assert "none of this machine's" in await answer.text()


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "localhost:1234", "[::1]:80"])
async def test_a_forwarded_port_is_this_machine(host: str) -> None:
    async with served(FakeKube(platform_map())) as page:
        answer = await page.get(headers={"Host": host, "Cookie": f"{COOKIE}={page.guard.token}"})
        assert answer.status == 200


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Origin", "https://evil.example"),
        ("Origin", "http://127.0.0.1:1"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ],
)
@pytest.mark.parametrize("path", ["", "stream", "api/overview"])
async def test_another_site_is_refused_though_the_browser_sends_the_cookie(path: str, name: str, value: str) -> None:
    kube = FakeKube(platform_map(), elastic_job())
    async with served(kube) as page:
        assert (await page.get(path, headers={name: value})).status == 403
    assert kube.sent == []


async def test_the_pages_own_requests_and_the_first_one_from_a_file_are_answered() -> None:
    async with served(FakeKube(platform_map())) as page:
        own = {"Origin": f"http://127.0.0.1:{page.client.port}", "Sec-Fetch-Site": "same-origin"}
        assert (await page.get("api/overview", headers=own)).status == 200
        first = await page.client.get(page.guard.opening, headers={"Sec-Fetch-Site": "cross-site"})
        assert first.status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
async def test_nothing_can_be_changed(method: str) -> None:
    kube = FakeKube(platform_map(), elastic_job())
    async with served(kube) as page:
        answer = await page.client.request(method, f"{page.guard.base}jobs/digits")
        assert (answer.status, answer.headers["Allow"]) == (405, "GET")
    assert kube.sent == []


@pytest.mark.parametrize("path", ["", "jobs/none", "stream", "api/overview", "static/ui.js", "static/none", "none"])
async def test_every_answer_forbids_what_the_page_does_not_need(path: str) -> None:
    async with served(FakeKube(platform_map())) as page:
        answer = await page.get(path)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        answer.close()


async def test_only_the_loopback_listens() -> None:
    async with serving(ebb_of(FakeKube(platform_map()))) as url:
        assert url.startswith("http://127.0.0.1:")
        port = urlsplit(url).port
        (await asyncio.open_connection("127.0.0.1", port))[1].close()
        with pytest.raises(OSError, match=r"127\.0\.0\.2"):  # an address of the machine that is another one
            await asyncio.open_connection("127.0.0.2", port)
