"""Files in and out of the gateway, what is refused, and that no way leads out of a volume."""

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from ebb.gateway.listing import entries
from tests.gateway.world import asking, sha256, volumes


async def test_a_file_goes_in_and_comes_out(tmp_path: Path) -> None:
    content = os.urandom(900_000)
    async with asking(tmp_path) as gateway:
        status, told = await gateway.put("data/new/folder/weights.bin", content, modified_ns=1_700_000_000_123_000_000)
        assert (status, told) == (201, {"path": str(tmp_path / "data/new/folder/weights.bin")})
        back = await gateway.get("data/new/folder/weights.bin")
        assert (back.status, await back.read()) == (200, content)
        _, facts = await gateway.ask("GET", "/v1/stat", "data/new/folder/weights.bin", sha256=1)
    assert {key: facts[key] for key in ("kind", "size", "sha256", "modified_ns", "read_only")} == {
        **{"kind": "file", "size": 900_000, "sha256": sha256(content)},
        **{"modified_ns": 1_700_000_000_123_000_000, "read_only": False},
    }


async def test_an_empty_file(tmp_path: Path) -> None:
    async with asking(tmp_path) as gateway:
        assert (await gateway.put("data/empty", b""))[0] == 201
        back = await gateway.get("data/empty")
        assert (back.status, await back.read()) == (200, b"")


async def test_the_rest_of_a_file_as_long_as_it_is_the_same_one(tmp_path: Path) -> None:
    async with asking(tmp_path) as gateway:
        await gateway.put("data/x", b"0123456789")
        first = await gateway.get("data/x")
        tag = first.headers["ETag"]
        rest = await gateway.get("data/x", Range="bytes=4-", **{"If-Match": tag})
        assert (rest.status, await rest.read(), rest.headers["Content-Range"]) == (206, b"456789", "bytes 4-9/10")
        beyond = await gateway.get("data/x", Range="bytes=11-")
        assert beyond.status == 416
        await gateway.put("data/x", b"another one")
        changed = await gateway.get("data/x", Range="bytes=4-", **{"If-Match": tag})
        assert changed.status == 412
        assert "has changed since" in (await changed.json())["error"]


async def test_a_listing_is_sorted_and_hides_what_is_on_its_way(tmp_path: Path) -> None:
    async with asking(tmp_path) as gateway:
        for name in ("b/2", "b/1", "a"):
            await gateway.put(f"data/{name}", name.encode())
        (tmp_path / "data" / "link").symlink_to("a")
        (tmp_path / "data" / ".ebb" / "code").mkdir()
        shallow = await gateway.client.get("/v1/list", params={"path": str(tmp_path / "data")})
        deep = await gateway.client.get("/v1/list", params={"path": str(tmp_path / "data"), "recursive": "1"})
        of_file = await gateway.client.get("/v1/list", params={"path": str(tmp_path / "data/a")})
        found = [[json.loads(line) for line in (await one.text()).splitlines()] for one in (shallow, deep, of_file)]
    names = [[(one["name"], one["kind"]) for one in lines] for lines in found]
    assert names[0] == [(".ebb", "folder"), ("a", "file"), ("b", "folder"), ("link", "link")]
    assert names[1] == [
        *((".ebb", "folder"), (".ebb/code", "folder"), ("a", "file"), ("b", "folder")),
        *(("b/1", "file"), ("b/2", "file"), ("link", "link")),
    ]
    assert names[2] == [("a", "file")]


async def test_a_long_listing_comes_in_pieces(tmp_path: Path) -> None:
    async with asking(tmp_path) as gateway:
        for index in range(1201):
            (tmp_path / "output" / f"{index:05}").touch()
        answer = await gateway.client.get("/v1/list", params={"path": str(tmp_path / "output")})
        lines = (await answer.text()).splitlines()
    assert [json.loads(line)["name"] for line in lines] == [f"{index:05}" for index in range(1201)]


async def test_removing_a_file_a_folder_and_a_link_but_not_what_it_leads_to(tmp_path: Path) -> None:
    async with asking(tmp_path) as gateway:
        await gateway.put("data/folder/inner/x", b"x")
        (tmp_path / "data" / "folder" / "out").symlink_to(tmp_path / "secret")
        (tmp_path / "data" / "link").symlink_to(tmp_path / "secret" / "key")
        assert (await gateway.ask("DELETE", "/v1/files", "data/link"))[0] == 200
        status, told = await gateway.ask("DELETE", "/v1/files", "data/folder")
        assert (status, "say --recursive" in told["error"]) == (409, True)
        assert (await gateway.ask("DELETE", "/v1/files", "data/folder", recursive=1))[0] == 200
        status, told = await gateway.ask("DELETE", "/v1/files", "data/folder", recursive=1)
        assert (status, "is not there" in told["error"]) == (404, True)
    assert [path.name for path in (tmp_path / "data").iterdir()] == [".ebb"]
    assert (tmp_path / "secret" / "key").read_text() == "do not read"


async def test_what_a_job_removes_at_the_same_time_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.unlink

    def late(name: str, *, dir_fd: int) -> None:
        real(name, dir_fd=dir_fd)
        real(name, dir_fd=dir_fd)

    async with asking(tmp_path) as gateway:
        for name in ("1", "inner/2"):
            await gateway.put(f"data/folder/{name}", b"x")
        monkeypatch.setattr("ebb.gateway.listing.os.unlink", late)
        assert (await gateway.ask("DELETE", "/v1/files", "data/folder", recursive=1))[0] == 200
    assert not (tmp_path / "data" / "folder").exists()


def test_a_listing_skips_what_it_may_not_look_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a folder that may be read and not entered; root, as in these tests, may always."""
    place, real = volumes(tmp_path).find(str(tmp_path / "data")), os.stat
    for name in ("a", "b", "c"):
        (tmp_path / "data" / name).touch()

    def refusing(name: str, **how: Any) -> os.stat_result:
        if name == "b":
            raise PermissionError(13, "Permission denied")
        return real(name, **how)

    monkeypatch.setattr("ebb.gateway.listing.os.stat", refusing)
    assert [one["name"] for one in entries(place, recursive=False)] == ["a", "c"]


def test_a_listing_keeps_names_alone(tmp_path: Path) -> None:
    """A folder may hold millions of files, and the gateway's machine is small."""
    place = volumes(tmp_path).find(str(tmp_path / "data"))
    for index in range(2000):
        (tmp_path / "data" / f"{index:05}").touch()
    tracemalloc.start()
    try:
        assert sum(1 for _ in entries(place, recursive=False)) == 2000
        assert tracemalloc.get_traced_memory()[1] < 400_000
    finally:
        tracemalloc.stop()


async def test_the_volumes_and_their_room(tmp_path: Path) -> None:
    async with asking(tmp_path) as gateway:
        _, found = await gateway.ask("GET", "/v1/volumes", "/")
    assert [(one["name"], one["read_only"]) for one in found] == [("data", False), ("output", False), ("sets", True)]
    assert all(0 < one["free"] <= one["total"] for one in found)


# --- Refused --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_a_read_only_volume_is_read_and_never_changed(tmp_path: Path, method: str) -> None:
    async with asking(tmp_path) as gateway:
        assert await (await gateway.get("sets/there")).read() == b"fixed"
        status, told = await gateway.ask(method, "/v1/files", "sets/there", size=1, sha256=sha256(b"x"), body=b"x", recursive=1)
    assert (status, told["error"]) == (
        403,
        f"{tmp_path / 'sets'} is read-only: nothing on it can be written or removed. Use another volume.",
    )
    assert (tmp_path / "sets" / "there").read_text() == "fixed"


ESCAPES = {
    "up": "data/../secret/key",
    "up at the end": "data/x/..",
    "another folder": "secret/key",
    "a folder whose name only begins alike": "data2/key",
    "the root": "/",
    "nothing": "",
    "a control character": "data/a\nb",
    "a zero": "data/a\0b",
    "through a link": "data/out/key",
    "a link": "data/key",
    "through a link in a volume": "data/inside/x",
    "uploads": "data/.ebb/uploads/x",
}


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
@pytest.mark.parametrize(("method", "route"), [("GET", "files"), ("GET", "list"), ("PUT", "files"), ("DELETE", "files")])
async def test_no_way_leads_out_of_a_volume(tmp_path: Path, escape: str, method: str, route: str) -> None:
    async with asking(tmp_path) as gateway:
        data = tmp_path / "data"
        (data / "out").symlink_to(tmp_path / "secret")
        (data / "key").symlink_to(tmp_path / "secret" / "key")
        (data / "real").mkdir()
        (data / "real" / "x").write_text("inside")
        (data / "inside").symlink_to(data / "real")
        path = escape if escape in ("", "/") else f"{tmp_path}/{escape}"
        given = {"path": path, "size": "1", "sha256": sha256(b"x"), "recursive": "1"}
        answer = await gateway.client.request(method, f"/v1/{route}", params=given, data=b"x" if method == "PUT" else None)
        text = await answer.text()
    if escape == "data/key" and (method, route) in (("GET", "list"), ("DELETE", "files")):  # a link is shown and removed as such
        assert (answer.status, "secret" in text) == (200, False)
    else:
        assert answer.status in (400, 403, 404, 409)
        assert "error" in json.loads(text)
    assert "do not read" not in text
    assert (tmp_path / "secret" / "key").read_text() == "do not read"
    assert [path.name for path in (tmp_path / "secret").iterdir()] == ["key"]
    assert (data / "real" / "x").read_text() == "inside"


@pytest.mark.parametrize(
    ("path", "kind"), [("data", "whole volume"), ("data/folder", "is a folder"), ("data/file/below", "is a file, not a folder")]
)
async def test_what_a_file_cannot_replace(tmp_path: Path, path: str, kind: str) -> None:
    async with asking(tmp_path) as gateway:
        (tmp_path / "data" / "folder").mkdir()
        (tmp_path / "data" / "file").write_text("x")
        status, told = await gateway.put(path, b"y")
    assert (status in (403, 409), kind in told["error"]) == (True, True), told
    assert (tmp_path / "data" / "file").read_text() == "x"


async def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    """A named pipe would hold a reader up for ever."""
    async with asking(tmp_path) as gateway:
        os.mkfifo(tmp_path / "data" / "pipe")
        for name in ("pipe", "."):
            answer = await gateway.get(f"data/{name}")
            assert (answer.status, "is no file" in (await answer.json())["error"]) == (409, True)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"sha256": "abc"}, "sha256 'abc' is not a checksum: 64 digits"),
        ({"size": "many"}, "size 'many' is not a whole number"),
        ({"offset": "-1"}, "offset '-1' is not a whole number"),
    ],
)
async def test_questions_that_make_no_sense(tmp_path: Path, query: dict[str, str], words: str) -> None:
    async with asking(tmp_path) as gateway:
        status, told = await gateway.put("data/x", b"x", **query)
    assert (status, words in told["error"]) == (400, True), told


async def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    async with asking(tmp_path) as gateway:
        status, told = await gateway.put(f"data/{'x' * 256}", b"x")
    assert (status, "255 bytes are the most" in told["error"]) == (400, True)
