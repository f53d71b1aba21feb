"""Something else than an API server answers, or only half of an answer arrives: an error like any other, and tried again."""

from pathlib import Path

import pytest
from aiohttp import web

from ebb.kube import PODS, Kube, KubeError, Unreachable
from tests.kube.server import Server, pod, watching

LOGIN = b"<html>Please log in</html>"


@pytest.mark.parametrize("kind", ["text/html", "application/json"])
@pytest.mark.parametrize("body", [LOGIN, b"\x1f\x8b\xff", b"", b"[]", b'{"items": ['])
async def test_an_answer_that_is_no_object_is_tried_again(
    kind: str, body: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server()
    server.pods, server.nonsense = [pod("a", 5)], [web.Response(body=body, content_type=kind)]
    async with watching(server, tmp_path) as (_, seen):
        await seen.until(lambda: seen.changes == ["+a@5"])
    assert "does not answer as a Kubernetes API server does, but with" in caplog.text


async def test_an_event_of_which_half_arrived_is_asked_for_again(tmp_path: Path) -> None:
    server = Server()
    server.scripts = [[("ADDED", pod("a", 12)), b'{"type": "ADDED", "obj', "end"], [("ADDED", pod("b", 13)), "hang"]]
    async with watching(server, tmp_path) as (_, seen):
        await seen.until(lambda: seen.changes == ["+a@12", "+b@13"])
    assert (server.lists, server.watched_from) == (1, ["10", "12"])


async def test_a_refusal_in_no_known_encoding_stays_a_refusal(tmp_path: Path) -> None:
    server = Server()
    async with watching(server, tmp_path) as (reflector, _), Kube.connect(str(tmp_path / "kubeconfig")) as kube:
        await reflector.synced.wait()
        server.nonsense = [web.Response(status=502, body=b"\xff\xfe", content_type="text/html", charset="utf-8")]
        with pytest.raises(KubeError) as refused:
            await kube.list(PODS)
    assert (refused.value.status, type(refused.value)) == (502, KubeError)


async def test_the_message_shows_who_answered(tmp_path: Path) -> None:
    server = Server()
    async with watching(server, tmp_path) as (reflector, _), Kube.connect(str(tmp_path / "kubeconfig")) as kube:
        await reflector.synced.wait()
        server.nonsense = [web.Response(body=LOGIN, content_type="text/html")]
        with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:\d+ does not answer .*'<html>Please log in</html>'"):
            await kube.list(PODS)
