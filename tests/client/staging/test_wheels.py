"""Wheels that travel with a job to workers that reach no package index."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from devcluster.images import environment
from ebb.api.platform import parse
from ebb.client.errors import BadRequest
from ebb.client.staging import wheels as module
from ebb.client.staging.code import packed
from ebb.client.staging.wheels import Wheels, fetch, wheels_for
from ebb.client.submission import submit as submitting
from ebb.client.submission.request import Request
from ebb.client.submission.submit import prepare, submit
from tests.cli.world import platform_map
from tests.elastic.launch.wheels import make_wheel, pack
from tests.reached import ebb_of, reached

LOCAL = parse(platform_map()["data"])
WHEELS = Wheels(requirements="einops\nnumpy\n", name="abc")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def asks(folder: Path, text: str) -> Path:
    (folder / "requirements.txt").write_text(text)
    return folder


def test_the_python_is_that_of_the_devcluster() -> None:
    assert ".".join(map(str, environment.PYTHON)) == module.PYTHON


PLACES = [
    "--no-index\neinops",
    "-r more.txt",
    "./own.whl",
    "einops @ https://a.org/einops.whl",
    "own/folder",
    "# none",
]


@pytest.mark.parametrize("text", PLACES)
def test_what_names_places_of_its_own_is_left_to_the_workers(tmp_path: Path, text: str) -> None:
    assert wheels_for(asks(tmp_path, text), {}, LOCAL) is None


def test_only_a_devclusters_workers_get_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = asks(tmp_path, 'einops\ntqdm[notebook] >= 4, < 5  # bars\nscipy ; python_version > "3.8"\n')
    found = wheels_for(folder, {"A": "b"}, LOCAL)
    assert found is not None
    assert wheels_for(folder, {}, replace(LOCAL, cloud="aws")) is None
    assert wheels_for(folder, {"PIP_INDEX_URL": "https://a.org"}, LOCAL) is None
    assert wheels_for(tmp_path / "nothing", {}, LOCAL) is None
    monkeypatch.setattr(module, "_IMAGE", tmp_path / "no checkout")
    assert wheels_for(folder, {}, LOCAL) is None


async def test_only_what_the_image_lacks_is_fetched_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    async def run(*words: str, folder: Path) -> str:
        asked.append(words)
        if words[0] == "pip":
            (folder / "new" / "einops.whl").write_bytes(b"x" * 100_000)
        return "einops==0.8.2\nNumPy==2.4.6\nnvidia-cublas==13.1\ntriton==3.7.1 ; sys_platform == 'linux'\ncolor_ama==1 ; a\n"

    monkeypatch.setattr(module, "_run", run)
    told: list[str] = []
    for _ in range(2):
        assert [each.name for each in await fetch(WHEELS, told.append)] == ["einops.whl"]
    assert [words[:2] for words in asked] == [("uv", "pip"), ("pip", "download")]
    assert asked[1][-2:] == ("einops==0.8.2", "color_ama==1")
    assert told[1:] == ["fetched color-ama, einops (0.1 MB)"]


async def test_what_cannot_be_fetched_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(*words: str, folder: Path) -> str:
        raise BadRequest("no such package")

    monkeypatch.setattr(module, "_run", run)
    with pytest.raises(BadRequest, match="no such package"):
        await fetch(WHEELS, lambda _: None)
    assert list((tmp_path / "cache" / "ebb" / "wheels").iterdir()) == []


async def test_they_are_where_the_worker_is_told_before_the_job_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.mkdir()
    wheel = make_wheel(tmp_path, "ebbnet")

    async def fetched(wheels: Wheels, note: object) -> tuple[Path, ...]:
        assert wheels.requirements == "ebbnet\n"
        return (wheel,)

    monkeypatch.setattr(submitting, "fetch", fetched)
    async with reached(tmp_path) as kube:
        ebb = ebb_of(kube)
        prepared = prepare(ebb, Request(name="exp1", arguments=("train.py",)), packed(asks(source, "ebbnet\n")))
        await submit(ebb, prepared.body, code=prepared.code)
        own = prepare(ebb, Request(name="exp2", arguments=("train.py",), image="mine"), packed(source))
    assert own.code is not None
    assert own.code.wheels is None
    (container,) = prepared.body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    (place,) = [Path(each["value"]) for each in container["env"] if each["name"] == "EBB_WHEELS"]
    assert (place / wheel.name).read_bytes() == wheel.read_bytes()


@pytest.mark.e2e
async def test_uv_and_pip_fetch_what_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From an index of folders: a package and what it needs; and uv's own words for one that is not there."""
    index = tmp_path / "simple"
    for name, needs in (("ebbnet", "ebbword"), ("ebbword", "")):
        (index / name).mkdir(parents=True)
        file = make_wheel(index / name, name, needs=needs) if needs else make_wheel(index / name, name)
        (index / name / "index.html").write_text(f'<a href="{file.name}">{file.name}</a>')
    monkeypatch.setenv("PIP_INDEX_URL", index.as_uri())
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    found = await fetch(Wheels(requirements="ebbnet\n", name="a"), lambda _: None)
    assert [each.name.partition("-")[0] for each in found] == ["ebbnet", "ebbword"]
    with pytest.raises(BadRequest, match=r"(?s)cannot be fetched for the workers, with Python 3.11 .*ebbother.*Correct it"):
        await fetch(Wheels(requirements="ebbother\n", name="b"), lambda _: None)


BACKEND = """
import zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "ebbsource-1.0-{tag}.whl"
    with zipfile.ZipFile(folder + "/" + name, "w") as wheel:
        wheel.writestr("ebbsource.py", "")
        wheel.writestr("ebbsource-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: ebbsource\\nVersion: 1.0\\n")
        wheel.writestr("ebbsource-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: {tag}\\n")
        wheel.writestr("ebbsource-1.0.dist-info/RECORD", "")
    return name
"""


@pytest.mark.e2e
@pytest.mark.parametrize("tag", ["py3-none-any", f"cp3{sys.version_info[1]}-none-linux_{os.uname().machine}"])
async def test_what_has_no_wheel_is_built_if_it_is_python_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tag: str
) -> None:
    """As hydra-core's parser is. An older version that does not need it is not what was asked for."""
    index = tmp_path / "simple"
    for name in ("ebbnet", "ebbsource"):
        (index / name).mkdir(parents=True)
    files = [make_wheel(index / "ebbnet", "ebbnet"), make_wheel(index / "ebbnet", "ebbnet", "2.0", needs="ebbsource")]
    (index / "ebbnet" / "index.html").write_text("".join(f'<a href="{file.name}">{file.name}</a>\n' for file in files))
    build = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    info = "Metadata-Version: 2.2\nName: ebbsource\nVersion: 1.0\n"
    source = {"pyproject.toml": build, "backend.py": BACKEND.format(tag=tag), "PKG-INFO": info}
    pack(index / "ebbsource" / "ebbsource-1.0.tar.gz", {f"ebbsource-1.0/{name}": text for name, text in source.items()})
    (index / "ebbsource" / "index.html").write_text('<a href="ebbsource-1.0.tar.gz">ebbsource-1.0.tar.gz</a>')
    monkeypatch.setenv("PIP_INDEX_URL", index.as_uri())
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    asked = fetch(Wheels(requirements="ebbnet\n", name="a"), lambda _: None)
    if "any" in tag:
        assert [each.name for each in await asked] == ["ebbnet-2.0-py3-none-any.whl", f"ebbsource-1.0-{tag}.whl"]
    else:
        with pytest.raises(BadRequest, match=r"ebbsource-1\.0\.tar\.gz, which has no wheel for the workers' Python 3\.11"):
            await asked
