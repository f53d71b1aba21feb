"""Digests are those of what registries give, and what goes wrong is one sentence. A server plays the registries."""

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from infra import registries

OCI_INDEX, OCI_IMAGE = registries.INDEXES[0], registries.MANIFESTS[0]
AMD, ARM = ({"os": "linux", "architecture": name} for name in ("amd64", "arm64"))
NAME = "library/python"


def index(*platforms: dict[str, str]) -> bytes:
    manifests = [{"mediaType": OCI_IMAGE, "digest": f"sha256:{'0' * 64}", "size": 1, "platform": one} for one in platforms]
    return json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests}).encode()


BOTH = index(ARM, AMD)
DIGEST = f"sha256:{hashlib.sha256(BOTH).hexdigest()}"


class Registry:
    """One with public images, which gives tokens to anybody and manifests for its token alone. `elsewhere`: sends on to that."""

    def __init__(self) -> None:
        self.content, self.kind, self.headers = BOTH, OCI_INDEX, {"Docker-Content-Digest": DIGEST}
        self.status, self.token_status = 200, 200
        self.challenge = 'Bearer realm="{url}/token",service="here",scope="repository:{name}:pull"'
        self.token: Any = {"token": "let-me-in"}
        self.elsewhere = ""
        self.asked: list[tuple[str, str | None]] = []
        self.url = self.host = ""

    def answer(self, path: str, headers: Any) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(path)
        self.asked.append((parts.path, headers["Authorization"]))
        if parts.path == "/token":
            assert parse_qs(parts.query) == {"service": ["here"], "scope": [f"repository:{NAME}:pull"]}
            return self.token_status, {}, self.token if isinstance(self.token, bytes) else json.dumps(self.token).encode()
        if self.elsewhere:
            return 307, {"Location": f"{self.elsewhere}{path}"}, b""
        if self.challenge and headers["Authorization"] != "Bearer let-me-in":
            return 401, {"WWW-Authenticate": self.challenge.format(url=self.url, name=NAME)}, b"{}"
        if not parts.path.startswith(f"/v2/{NAME}/manifests/3.11"):
            return 404, {}, b"{}"
        assert set(headers["Accept"].split(", ")) == {*registries.INDEXES, *registries.MANIFESTS}
        return self.status, {"Content-Type": self.kind, **self.headers}, self.content


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield from serve()


@pytest.fixture
def other() -> Iterator[Registry]:
    yield from serve()


def serve() -> Iterator[Registry]:
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, content = registry.answer(self.path, self.headers)
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.host = f"127.0.0.1:{server.server_port}"
        registry.url = f"http://{registry.host}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield registry
        server.shutdown()
        thread.join()


def image(registry: Registry, tag: str = "3.11") -> str:
    return f"{registry.host}/{NAME}:{tag}"


def refused(registry: Registry, tag: str = "3.11") -> str:
    with pytest.raises(registries.NotResolvedError) as caught:
        registries.resolve(image(registry, tag))
    return str(caught.value).replace(registry.host, "HOST")


def test_the_digest_is_that_of_the_index_and_a_token_is_asked_for_once(registry: Registry) -> None:
    assert registries.resolve(image(registry)) == DIGEST
    manifest = f"/v2/{NAME}/manifests/3.11"
    assert registry.asked == [(manifest, None), ("/token", None), (manifest, "Bearer let-me-in")]


@pytest.mark.parametrize(
    "changes",
    [{"challenge": ""}, {"token": {"access_token": "let-me-in"}}, {"headers": {}}],
    ids=["without tokens", "OAuth's word for it", "a registry that names no digest"],
)
def test_registries_that_differ_give_the_same(changes: dict[str, Any], registry: Registry) -> None:
    vars(registry).update(changes)
    assert registries.resolve(image(registry)) == DIGEST


def test_an_image_for_one_architecture_has_the_digest_of_its_manifest(registry: Registry) -> None:
    registry.content = json.dumps({"schemaVersion": 2, "config": {}, "layers": []}).encode()
    registry.kind, registry.headers = OCI_IMAGE, {}
    assert registries.resolve(image(registry)) == f"sha256:{hashlib.sha256(registry.content).hexdigest()}"


def test_a_token_goes_to_who_asked_for_it_and_no_further(registry: Registry, other: Registry) -> None:
    registry.elsewhere = other.url
    assert registries.resolve(image(registry)) == DIGEST
    assert "Bearer let-me-in" in {token for _, token in other.asked}
    assert {token for _, token in registry.asked} == {None}
    other.challenge, other.asked, registry.elsewhere = "", [], ""
    registry.answer = lambda path, headers: (  # type: ignore[method-assign]
        (307, {"Location": f"{other.url}{path}"}, b"") if headers["Authorization"] else Registry.answer(registry, path, headers)
    )
    assert registries.resolve(image(registry)) == DIGEST
    assert {token for _, token in other.asked} == {None}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another content than named": (
        {"headers": {"Docker-Content-Digest": f"sha256:{'1' * 64}"}},
        f"HOST names sha256:{'1' * 64}, and what it gave is {DIGEST}: something between changes it",
    ),
    "other machines": ({"content": index(ARM), "headers": {}}, "it is there for linux/arm64, and machines are linux/amd64"),
    "an index of nothing": ({"content": index(), "headers": {}}, "it is there for nothing, and machines are linux/amd64"),
    "no image": ({"content": b"{}", "kind": "application/json", "headers": {}}, "HOST answered with 'application/json'"),
    "a page": ({"content": b"<html>", "headers": {}}, "HOST answered with b'<html>', which is not a JSON object"),
    "too much": ({"content": b" " * (registries.LARGEST_BYTES + 1)}, "HOST does not answer: more than 4194304 bytes"),
    "rate limit": ({"status": 429, "headers": {"Retry-After": "77"}}, "(429): try again in 77 s"),
    "rate limit without an end": ({"status": 429}, "(429): try again in an hour"),
    "rate limit of tokens": ({"token_status": 429}, "(429): try again in an hour"),
    "broken": ({"status": 503}, "HOST answered 503 Service Unavailable: try again later"),
    "a private image": ({"token_status": 401}, "HOST gives it only after a login (401): `docker buildx imagetools inspect HOST/"),
    "a forbidden image": ({"status": 403}, "HOST gives it only after a login (403)"),
    "a login by password": ({"challenge": 'Basic realm="x"'}, "HOST gives it only after a login (401)"),
    "a token by plain text": (
        {"challenge": 'Bearer realm="http://elsewhere.example/token"'},
        "HOST sends for a token to 'http://elsewhere.example/token', which is not https",
    ),
    "no token": ({"token": {}}, "HOST answered without a token"),
    "a page for a token": ({"token": b"<html>"}, "HOST answered with b'<html>', which is not a JSON object"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_one_sentence(changes: dict[str, Any], words: str, registry: Registry) -> None:
    vars(registry).update(changes)
    assert words in refused(registry)


def test_a_tag_that_is_not_there_and_a_registry_that_is_not(registry: Registry) -> None:
    assert refused(registry, "2.7") == "HOST has no such tag: check the name and the version"
    registry.host = "127.0.0.1:9"  # the discard port, where nobody listens
    assert refused(registry).startswith("HOST does not answer: [Errno 111]")
    with pytest.raises(registries.NotResolvedError, match=r"'python:3\.11' is not HOST/NAME:TAG, as in docker"):
        registries.resolve("python:3.11")
