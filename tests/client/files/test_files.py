"""Files to and from the volumes, over real streams to a real gateway: what breaks off goes on, what is wrong is said."""

import asyncio
import itertools
import os
from pathlib import Path

import pytest

from ebb.api.platform import Sidecar, Volume
from ebb.client.errors import BadRequest, ClientError, Missing, NoPlatform
from ebb.client.files import data
from ebb.client.files.transfer import Files, gateway
from ebb.kube import Unreachable
from tests.builders import make_platform
from tests.reached import Reached, ebb_of, gateway_pod, reached

CONTENT = os.urandom(3_000_000)
SOON = (0.001,) * 6


def local(folder: Path, name: str, content: bytes = CONTENT) -> Path:
    file = folder / "local" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


class Counted:
    """Shows nothing, and breaks the way to the gateway when so many bytes have moved."""

    def __init__(self, kube: Reached | None = None, at: int = 0) -> None:
        self.total, self.files, self.bytes = 0, 0, 0
        self._kube, self._at = kube, at

    def announce(self, files: int, size: int) -> None:
        self.files += files
        self.total += size

    def moved(self, size: int) -> None:
        self.bytes += size
        if self._kube is not None and self.bytes >= self._at:
            kube, self._kube = self._kube, None
            kube.pods.lose("ebb-gateway-1")
            kube.pods.lost.clear()


# --- One file -------------------------------------------------------------------------------------------------------------------


async def test_a_file_goes_and_comes_back(tmp_path: Path) -> None:
    file = local(tmp_path, "weights.pt")
    async with reached(tmp_path) as kube, gateway(ebb_of(kube)) as files:
        path = f"{tmp_path}/data/new/weights.pt"
        stored = await files.put(path, file)
        assert (stored.size, stored.moved) == (len(CONTENT), len(CONTENT))
        back = await files.get(path, tmp_path / "back" / "weights.pt")
        assert (back.sha256, back.moved) == (stored.sha256, len(CONTENT))
        assert (await files.put(path, file)).moved == 0
    assert (tmp_path / "data" / "new" / "weights.pt").read_bytes() == CONTENT
    assert (tmp_path / "back" / "weights.pt").read_bytes() == CONTENT
    assert (tmp_path / "back" / "weights.pt").stat().st_mtime_ns == file.stat().st_mtime_ns
    assert [one.name for one in (tmp_path / "back").iterdir()] == ["weights.pt"]


@pytest.mark.parametrize("at", [1, 1_000_000, 2_500_000])
async def test_an_upload_goes_on_where_its_connection_broke(tmp_path: Path, at: int) -> None:
    file = local(tmp_path, "weights.pt")
    async with reached(tmp_path) as kube, gateway(ebb_of(kube), pauses=SOON) as files:
        counted = Counted(kube, at)
        stored = await files.put(f"{tmp_path}/data/weights.pt", file, moved=counted.moved)
    assert (tmp_path / "data" / "weights.pt").read_bytes() == CONTENT
    assert counted.bytes == stored.moved == len(CONTENT)
    assert len([how for how, path in kube.pods.asked if path.endswith("portforward")]) == 2


@pytest.mark.parametrize("at", [1, 1_000_000, 2_500_000])
async def test_a_download_goes_on_where_its_connection_broke(tmp_path: Path, at: int) -> None:
    local(tmp_path, "../data/weights.pt")
    async with reached(tmp_path) as kube, gateway(ebb_of(kube), pauses=SOON) as files:
        counted = Counted(kube, at)
        await files.get(f"{tmp_path}/data/weights.pt", tmp_path / "weights.pt", moved=counted.moved)
    assert (tmp_path / "weights.pt").read_bytes() == CONTENT
    assert counted.bytes == len(CONTENT)


async def test_another_run_goes_on_with_an_upload(tmp_path: Path) -> None:
    """What was cut off: Ctrl-C, a laptop that was closed."""
    content = os.urandom(20_000_000)
    file, began = local(tmp_path, "weights.pt", content), asyncio.Event()
    path, uploads = f"{tmp_path}/data/weights.pt", tmp_path / "data" / ".ebb" / "uploads"

    def moved(_: int) -> None:
        if any(part.stat().st_size for part in uploads.glob("*")):
            began.set()

    async with reached(tmp_path) as kube:
        async with gateway(ebb_of(kube)) as files:
            task = asyncio.create_task(files.put(path, file, moved=moved))
            await began.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert not (tmp_path / "data" / "weights.pt").exists()
        async with gateway(ebb_of(kube)) as files:
            stored = await files.put(path, file)
    assert 0 < stored.moved < len(content)
    assert (tmp_path / "data" / "weights.pt").read_bytes() == content


async def test_a_gateway_that_moved_to_another_pod_is_found(tmp_path: Path) -> None:
    file = local(tmp_path, "weights.pt")
    async with reached(tmp_path) as kube, gateway(ebb_of(kube), pauses=SOON) as files:
        await files.volumes()
        kube.pods.lose("ebb-gateway-1")
        kube.remove(gateway_pod())
        kube.put(gateway_pod("ebb-gateway-2"))
        await files.put(f"{tmp_path}/data/weights.pt", file)
    assert (tmp_path / "data" / "weights.pt").read_bytes() == CONTENT


async def test_a_gateway_that_stays_away_is_told_with_its_cause(tmp_path: Path) -> None:
    async with reached(tmp_path) as kube, gateway(ebb_of(kube), pauses=SOON) as files:
        kube.pods.lose("ebb-gateway-1")
        with pytest.raises(Unreachable, match="the gateway does not answer: the API server cannot reach the pod"):
            await files.put(f"{tmp_path}/data/x", local(tmp_path, "x"))


@pytest.mark.parametrize("pod", [None, gateway_pod(ready=False), gateway_pod(labels={"group-name": "elastic.pytorch.org"})])
async def test_a_stack_without_a_gateway_or_with_a_false_one(tmp_path: Path, pod: dict[str, object] | None) -> None:
    async with reached(tmp_path, *([pod] if pod else []), gateway=False) as kube:
        with pytest.raises(NoPlatform, match=r"gateway does not run in elastic-job.*run `pulumi up`"):
            async with gateway(ebb_of(kube)):
                pass


async def test_a_file_that_grows_is_read_as_it_was(tmp_path: Path) -> None:
    """Metrics of a running job: a file that is appended to, for reading as a whole and line by line."""
    async with reached(tmp_path) as kube, gateway(ebb_of(kube)) as files:
        log = local(tmp_path, "../data/log", b"one\n" * 1_000_000)
        task = asyncio.create_task(
            files.get(f"{tmp_path}/data/log", tmp_path / "copy", moved=lambda size: _append(log) if size else None)
        )
        stored = await task
        assert stored.size % 4 == 0
        assert (tmp_path / "copy").read_bytes() == b"one\n" * (stored.size // 4)
        assert b"".join([piece async for piece in files.read(f"{tmp_path}/data/log", 3_999_996)])[:8] == b"one\none\n"
        assert [piece async for piece in files.read(f"{tmp_path}/data/log", log.stat().st_size)] == []


def _append(log: Path) -> None:
    with log.open("ab") as opened:
        opened.write(b"one\n")


async def test_paths_are_the_files_below_a_folder(tmp_path: Path) -> None:
    async with reached(tmp_path) as kube, gateway(ebb_of(kube)) as files:
        for name in ("b/2", "a", "b/1"):
            local(tmp_path, f"../data/x/{name}", b"x")
        (tmp_path / "data" / "x" / "link").symlink_to("a")
        root = f"{tmp_path}/data/x"
        assert await files.paths(root) == (f"{root}/a", f"{root}/b/1", f"{root}/b/2")
        assert await files.paths(f"{root}/none") == ()


REFUSED = {
    "not there": (lambda files, root, here: files.get(f"{root}/data/none", here), Missing, "is not there"),
    "read": (lambda files, root, here: files.stat(f"{root}/data/none"), Missing, "`ebb data ls` shows"),
    "no volume": (lambda files, root, here: files.put("/etc/passwd", here), BadRequest, "is on no volume"),
    "read-only": (lambda files, root, here: files.put(f"{root}/sets/x", here), BadRequest, "is read-only"),
    "a folder": (lambda files, root, here: files.put(f"{root}/data/folder", here), BadRequest, "is a folder"),
    "remove": (lambda files, root, here: files.remove(f"{root}/data/folder"), BadRequest, "say --recursive"),
    "no local file": (lambda files, root, here: files.put(f"{root}/data/x", here / "none"), BadRequest, "local/x/none: "),
    "a local folder": (lambda files, root, here: files.get(f"{root}/data/there", here.parent), BadRequest, "is a folder"),
}


@pytest.mark.parametrize(("work", "error", "words"), REFUSED.values(), ids=REFUSED)
async def test_what_is_refused_says_why(tmp_path: Path, work, error: type[ClientError], words: str) -> None:  # type: ignore[no-untyped-def]
    here = local(tmp_path, "x", b"x")
    async with reached(tmp_path) as kube, gateway(ebb_of(kube), pauses=()) as files:
        (tmp_path / "data" / "folder").mkdir()
        (tmp_path / "data" / "there").write_text("x")
        with pytest.raises(error, match=words):
            await work(files, tmp_path, here)


async def test_a_file_that_changes_all_the_time_is_given_up(tmp_path: Path) -> None:
    file, numbers = local(tmp_path, "x"), itertools.count()
    async with reached(tmp_path) as kube, gateway(ebb_of(kube)) as files:
        with pytest.raises(ClientError, match=r"not what was announced \(sha256\).*It was tried 3 times"):
            await files.put(f"{tmp_path}/data/x", file, moved=lambda size: spoil(file, next(numbers)) if size > 0 else None)
    assert not (tmp_path / "data" / "x").exists()


def spoil(file: Path, number: int) -> None:
    """Another last byte for each number."""
    with file.open("r+b") as opened:
        opened.seek(-1, os.SEEK_END)
        opened.write(bytes([number % 256 ^ CONTENT[-1] ^ 1]))


# --- Folders --------------------------------------------------------------------------------------------------------------------


def tree(folder: Path) -> dict[str, bytes]:
    hidden = (".ebb",)
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in files if path.parts[len(folder.parts)] not in hidden
    }


async def test_a_folder_goes_and_comes_and_a_second_time_only_what_is_new(tmp_path: Path) -> None:
    source = tmp_path / "set"
    for index in range(30):
        local(source, f"../train/{index % 3}/{index}.jpg", bytes([index]) * index * 100)
    (source / "train" / "link.jpg").symlink_to(source / "train" / "1" / "1.jpg")
    (source / "train" / "out").symlink_to(tmp_path)
    async with reached(tmp_path) as kube:
        ebb, counted = ebb_of(kube), Counted()
        done = await data.put(ebb, source, "data/set", counted)
        assert (done.files, done.there_already, done.target) == (31, 0, f"{tmp_path}/data/set")
        assert done.left_out == (str(source / "train" / "out"),)
        assert (counted.files, counted.total, counted.bytes) == (31, done.size, done.size)
        local(source, "../train/0/0.jpg", b"new")
        again = await data.put(ebb, source, "data/set")
        assert (again.files, again.there_already, again.size) == (1, 30, 3)
        sure = await data.put(ebb, source, "data/set", checksum=True)
        assert (sure.files, sure.size) == (0, 0)
        fetched = await data.get(ebb, "data/set", f"{tmp_path}/copy")
        assert fetched.files == 31
        assert (await data.get(ebb, "data/set", f"{tmp_path}/copy")).there_already == 31
    assert tree(tmp_path / "copy") == tree(tmp_path / "data" / "set")
    assert tree(tmp_path / "copy")["train/0/0.jpg"] == b"new"
    assert len(tree(tmp_path / "copy")) == 31


async def test_a_folder_whose_way_breaks_arrives_whole(tmp_path: Path) -> None:
    source = tmp_path / "set"
    for index in range(40):
        local(source, f"../{index}", os.urandom(50_000))
    async with reached(tmp_path) as kube:
        await data.put(ebb_of(kube), source, "data/set", Counted(kube, 1_000_000))
    assert tree(tmp_path / "data" / "set") == tree(source)


async def test_what_a_job_removes_meanwhile_is_left_out(tmp_path: Path) -> None:
    """Older checkpoints go while newer ones come."""
    for index in range(12):
        local(tmp_path, f"../data/set/{index:02}", b"x")

    class Removing(Counted):
        def announce(self, files: int, size: int) -> None:
            (tmp_path / "data" / "set" / "11").unlink()

    async with reached(tmp_path) as kube:
        done = await data.get(ebb_of(kube), "data/set", f"{tmp_path}/copy", Removing())
    assert (done.files, done.there_already, done.left_out) == (11, 0, (f"{tmp_path}/data/set/11",))


NAMES = {
    "a new name": ("data/x", "data/x"),
    "into a folder": ("data/there/", "data/there/weights.pt"),
    "into one that is there": ("data/there", "data/there/weights.pt"),
    "into a volume": ("data", "data/weights.pt"),
}


@pytest.mark.parametrize(("target", "found"), NAMES.values(), ids=NAMES)
async def test_where_a_file_goes(tmp_path: Path, target: str, found: str) -> None:
    async with reached(tmp_path) as kube:
        (tmp_path / "data" / "there").mkdir()
        done = await data.put(ebb_of(kube), local(tmp_path, "weights.pt", b"x"), target)
    assert done.target == f"{tmp_path}/{found}"
    assert (tmp_path / found).read_bytes() == b"x"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere/x", r"is on no volume of the platform: use data/\.\.\. .* `ebb data ls` shows them"),
        ("data/../x", r"may not hold `\.\.`"),
        ("sets/x", r"is on the read-only volume sets: use data/\.\.\. or output/\.\.\."),
        ("data/file", r"is a file: a folder cannot go there"),
    ],
)
async def test_where_a_folder_cannot_go(tmp_path: Path, target: str, words: str) -> None:
    local(tmp_path, "x", b"x")
    async with reached(tmp_path) as kube:
        (tmp_path / "data" / "file").write_text("x")
        with pytest.raises(BadRequest, match=words):
            await data.put(ebb_of(kube), tmp_path / "local", target)


@pytest.mark.parametrize("said", ["shards", "shards/a.tar", "/mnt/shards/a.tar"])
def test_a_bucket_that_workers_alone_mount_is_not_in_the_gateway(said: str) -> None:
    sidecar = Sidecar(annotations=(), cpu=0.25, memory_gib=1.0)
    volumes = [Volume(name="data", claim="ebb-data", mount_path="/mnt/data", read_only=False)]
    volumes.append(Volume(name="shards", claim="ebb-shards", mount_path="/mnt/shards", read_only=True, sidecar=sidecar))
    with pytest.raises(BadRequest, match=f"path '{said}' is in bucket shards, .* mounts in workers alone: read it in a job"):
        data.place(make_platform(volumes=tuple(volumes)), said)


async def test_the_first_error_of_a_folder_ends_it(tmp_path: Path) -> None:
    for index in range(20):
        local(tmp_path, f"{index}", b"x")
    async with reached(tmp_path) as kube:
        (tmp_path / "data" / "set" / "7").mkdir(parents=True)
        with pytest.raises(BadRequest, match="set/7 is a folder"):
            await data.put(ebb_of(kube), tmp_path / "local", "data/set")


def test_files_is_what_other_parts_ask_for() -> None:
    """Protocols of code, logs and report: structural, and so checked here."""
    assert {"put", "get", "read", "paths", "list", "stat", "remove"} <= set(vars(Files))
