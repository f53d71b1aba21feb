"""Names of images by content, and the containerd root that machines share."""

import asyncio
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from devcluster.commands import CommandError
from devcluster.images import base, build, prepared
from devcluster.images.build import Recipe
from devcluster.images.prepared import CONTENT, DATABASES, METADATA, SNAPSHOTS
from devcluster.settings import BoxError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "trainer"
    (folder / "__pycache__").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)\n")
    (folder / "__pycache__" / "train.pyc").write_bytes(b"1")
    return folder


def tag(source: Path, dockerfile: str = "FROM scratch\n", **arguments: str) -> str:
    return Recipe(name="trainer", dockerfile=dockerfile, sources={"trainer": source}, arguments=arguments).tag


def test_the_same_content_has_the_same_tag(source: Path) -> None:
    before = tag(source, BASE="a")
    (source / "__pycache__" / "train.pyc").write_bytes(b"2")
    os.utime(source / "train.py", (1, 1))
    assert tag(source, BASE="a") == before
    assert len(before) == 12


def test_any_change_of_content_changes_the_tag(source: Path) -> None:
    tags = {tag(source, BASE="a"), tag(source, BASE="b"), tag(source, "FROM scratch\nUSER 1\n", BASE="a")}
    (source / "train.py").chmod(0o755)
    tags.add(tag(source, BASE="a"))
    (source / "train.py").write_text("print(2)\n")
    tags.add(tag(source, BASE="a"))
    (source / "train.py").rename(source / "other.py")
    tags.add(tag(source, BASE="a"))
    assert len(tags) == 6


def test_reference_and_archive_carry_the_tag(tmp_path: Path) -> None:
    image = build.image_of(tmp_path, "trainer", "0123")
    assert image.reference == "localhost/ebb/trainer:0123"
    assert image.archive == tmp_path / "trainer-0123.tar"


def test_the_older_etcd_has_an_image_only_where_its_program_was_built(tmp_path: Path) -> None:
    programs = {name: tmp_path / name for name in ("coredns", "etcd", "etcd-legacy")}
    made = {recipe.name: recipe for recipe in build.recipes(programs, "base:1")}
    assert made["etcd"].sources == {"etcd": programs["etcd"]}
    assert (made["etcd-legacy"].sources, made["etcd-legacy"].dockerfile) == (
        {"etcd": programs["etcd-legacy"]},
        made["etcd"].dockerfile,
    )
    del programs["etcd-legacy"]
    assert {recipe.name for recipe in build.recipes(programs, "base:1")} == set(made) - {"etcd-legacy"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A prepared containerd root with one layer."""
    folder = tmp_path / "prepared-1"
    for path in (CONTENT / "blobs" / "sha256", SNAPSHOTS / "snapshots" / "1" / "fs", METADATA):
        (folder / path).mkdir(parents=True)
    (folder / CONTENT / "blobs" / "sha256" / "abc").write_text("blob")
    (folder / SNAPSHOTS / "snapshots" / "1" / "fs" / "file").write_text("layer")
    for database in DATABASES:
        (folder / database).write_text("bolt")
    return folder


def test_a_machine_shares_layers_and_owns_its_databases(root: Path, tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    prepared.clone(root, machine)
    assert (machine / SNAPSHOTS / "snapshots" / "1" / "fs" / "file").read_text() == "layer"
    assert (machine / CONTENT / "blobs" / "sha256" / "abc").stat().st_nlink == 2
    for database in DATABASES:
        (machine / database).write_text("changed")
        assert (root / database).read_text() == "bolt"


def test_removing_a_machine_leaves_the_shared_layers(root: Path, tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    prepared.clone(root, machine)
    (machine / SNAPSHOTS / "snapshots" / "1").unlink()
    assert (root / SNAPSHOTS / "snapshots" / "1" / "fs" / "file").read_text() == "layer"


def test_before_the_first_build_there_is_no_set(tmp_path: Path) -> None:
    assert prepared.current(tmp_path) is None


def test_sets_go_when_no_machine_uses_them(tmp_path: Path) -> None:
    for name in ("prepared-old", "prepared-used", "prepared-new", ".prepared-x-partial"):
        (tmp_path / "images" / name).mkdir(parents=True)
    machine = tmp_path / "boxes" / "b" / "machines" / "m" / "containerd"
    machine.mkdir(parents=True)
    (machine / prepared.USED).write_text("prepared-used")
    prepared._forget_unused(tmp_path, tmp_path / "images" / "prepared-new")
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == ["prepared-new", "prepared-used"]


def test_a_running_jobs_image_stays_for_its_replacement_pods() -> None:
    def image_set(trainer: str, *older: str) -> prepared.ImageSet:
        return prepared.ImageSet(folder=Path(), references={"pause": "ebb/pause:1", "trainer": trainer}, older=older)

    wanted = {"pause": "ebb/pause:1", "trainer": "ebb/trainer:4"}
    assert prepared.older_versions(wanted, image_set("ebb/trainer:3")) == ("ebb/trainer:3",)
    assert prepared.older_versions(wanted, image_set("ebb/trainer:3", "ebb/trainer:2", "ebb/trainer:1")) == (
        "ebb/trainer:3",
        "ebb/trainer:2",
    )
    assert prepared.older_versions(wanted, image_set("ebb/trainer:4", "ebb/trainer:3")) == ("ebb/trainer:3",)


@pytest.mark.parametrize("failures", [0, 1, 2])
async def test_a_mirror_that_fails_is_asked_again(failures: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots: list[Path] = []

    async def installs(_what: str, args: list[str], **_: object) -> None:
        roots.append(Path(args[4]))
        if len(roots) <= failures:
            (roots[-1] / "debootstrap").mkdir(parents=True)
            (roots[-1] / "debootstrap/debootstrap.log").write_text("ERROR 503: Service Unavailable.")
            raise CommandError("no such file on the mirror")

    async def mirror() -> str:
        return "http://mirror"

    monkeypatch.setattr(base, "watch", installs)
    monkeypatch.setattr(base, "_mirror", mirror)
    if failures == 2:
        with pytest.raises(CommandError, match=r"no such file on the mirror\nERROR 503: Service Unavailable\."):
            await base._installed(tmp_path, tmp_path / "log", pauses=(0.01,))
    else:
        assert await base._installed(tmp_path, tmp_path / "log", pauses=(0.01,)) == roots[-1]
    assert len(roots) == len(set(roots)) == min(failures + 1, 2)


async def test_a_second_checkout_downloads_no_debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    async def makes(archive: Path, _log: Path) -> None:
        made.append(archive)
        archive.write_text("debian")

    monkeypatch.setattr(build, "make_base_archive", makes)
    for checkout in ("first.tar", "second.tar"):
        await build.base_archive(tmp_path / checkout, tmp_path / "log", tmp_path / "cache" / "ebb")
        assert (tmp_path / checkout).read_text() == "debian"
    assert made == [tmp_path / "first.tar"]
    assert len(list((tmp_path / "cache" / "ebb").iterdir())) == 1


def archive_of(path: Path, *references: str) -> Path:
    """A docker archive without layers."""
    with tarfile.open(path, "w") as tar:
        content = json.dumps([{"Config": "config.json", "RepoTags": list(references), "Layers": []}]).encode()
        header = tarfile.TarInfo("manifest.json")
        header.size = len(content)
        tar.addfile(header, io.BytesIO(content))
    return path


def test_an_archive_names_its_image(tmp_path: Path) -> None:
    assert prepared.reference_in(archive_of(tmp_path / "image.tar", "lab/mine:1")) == "lab/mine:1"


@pytest.mark.parametrize("references", [(), ("lab/mine:1", "lab/mine:2")])
def test_an_archive_of_no_one_image_is_refused_with_the_fix(tmp_path: Path, references: tuple[str, ...]) -> None:
    archive = archive_of(tmp_path / "image.tar", *references)
    with pytest.raises(BoxError, match=r"image\.tar is no archive of one image with a name .*docker save"):
        prepared.reference_in(archive)
    (tmp_path / "other.tar").write_text("no archive")
    with pytest.raises(BoxError, match=r"other\.tar is no archive"):
        prepared.reference_in(tmp_path / "other.tar")


def test_a_loaded_image_is_in_the_next_sets_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepares: list[dict[str, Path]] = []

    async def prepare(folder: Path, _: object, archives: dict[str, Path], wanted: set[str]) -> None:
        prepares.append(archives)
        assert archives.keys() <= wanted
        folder.mkdir()

    monkeypatch.setattr(prepared, "_prepare", prepare)
    home, archive = tmp_path, archive_of(tmp_path / "image.tar", "lab/mine:1")
    (home / "images").mkdir()
    with pytest.raises(BoxError, match="python -m devcluster images"):
        asyncio.run(prepared.load(home, archive))
    pause = {"pause": build.image_of(home, "pause", "1")}
    asyncio.run(prepared.ensure(home, pause))
    assert asyncio.run(prepared.load(home, archive)) == "lab/mine:1"
    assert prepares[1:] == [{"lab/mine:1": archive}]
    assert asyncio.run(prepared.load(home, archive)) == "lab/mine:1", "it is there"
    asyncio.run(prepared.ensure(home, pause))
    assert len(prepares) == 2, "nothing to do"
    newer = asyncio.run(prepared.ensure(home, {"pause": build.image_of(home, "pause", "2")}))
    assert newer.older == ("localhost/ebb/pause:1", "lab/mine:1")
