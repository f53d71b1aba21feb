"""Which torch the training environment gets: from indexes on a local server, with wheels of a few bytes."""

import hashlib
import importlib.util
import io
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from devcluster import downloads, settings
from devcluster.images import environment

CPU, ORDINARY = "download.pytorch.org/whl/cpu", "simple"


def wheel(name: str, version: str) -> bytes:
    packed, info = io.BytesIO(), f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": f"__version__ = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"]))
    return packed.getvalue()


class Indexes:
    """Package indexes below one address: (index, file name) -> wheel."""

    def __init__(self) -> None:
        self.wheels: dict[tuple[str, str], bytes] = {}
        self.address = ""

    def publish(self, index: str, name: str, version: str) -> None:
        self.wheels[index, f"{name}-{version}-py3-none-any.whl"] = wheel(name, version)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        index, _, last = request.path.strip("/").rpartition("/")
        if (index, last) in self.wheels:
            return web.Response(body=self.wheels[index, last])
        links = [
            f'<a href="/{index}/{file.replace("+", "%2B")}#sha256={hashlib.sha256(content).hexdigest()}">{file}</a>'
            for (where, file), content in self.wheels.items()
            if where == index and file.startswith(f"{last}-")
        ]
        return web.Response(text="\n".join(links), content_type="text/html") if links else web.Response(status=404)


@pytest.fixture
async def indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Indexes]:
    """One server for both indexes; the requirements are torch and a package that the CPU wheels' index has in another version."""
    served = Indexes()
    runner = web.ServerRunner(web.Server(served.answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    served.publish(ORDINARY, "torch", "2.13.0")
    served.publish(ORDINARY, "filelock", "4.2.11")
    (tmp_path / "requirements.txt").write_text("torch==2.13.0\nfilelock==4.2.11\n")
    monkeypatch.setattr(environment, "REQUIREMENTS", tmp_path / "requirements.txt")
    monkeypatch.setattr(environment, "GPU", tmp_path / "nvidia0")
    monkeypatch.setattr(environment, "join_virtual_environment", lambda _: None)
    monkeypatch.setattr(settings, "DOWNLOADS", address)
    monkeypatch.setattr(downloads, "_unreachable", dict[str, str]())
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": f"{address}/{ORDINARY}", "PIP_NO_CACHE_DIR": "1",
        "UV_NO_CONFIG": "1", "UV_DEFAULT_INDEX": f"{address}/{ORDINARY}", "UV_CACHE_DIR": str(tmp_path / "uv"),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    yield served
    await runner.cleanup()


BY = [
    "pip",
    pytest.param("uv", marks=pytest.mark.skipif(importlib.util.find_spec("uv") is None, reason="uv is not in this environment")),
]


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize(
    ("published", "gpu", "version", "said"),
    [
        (True, False, "2.13.0+cpu", "torch: the CPU wheel of download.pytorch.org"),
        (False, False, "2.13.0", "torch: the ordinary wheel, with CUDA: download.pytorch.org does not answer"),
        (True, True, "2.13.0", "torch: the ordinary wheel, with CUDA: this machine has a GPU"),
    ],
    ids=["its index answers", "it does not", "a GPU"],
)
async def test_cpu_wheels_are_taken_where_their_index_answers(
    indexes: Indexes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *,
    by: str, published: bool, gpu: bool, version: str, said: str,
) -> None:  # fmt: skip
    if by == "pip":
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    if published:
        indexes.publish(CPU, "torch", "2.13.0+cpu")
        indexes.publish(CPU, "filelock", "3.13.1")
    if gpu:
        environment.GPU.touch()
    folder = await environment.ensure(tmp_path / "home")
    assert (folder / "torch" / "__init__.py").read_text() == f"__version__ = {version!r}\n"
    assert (folder / "filelock" / "__init__.py").read_text() == "__version__ = '4.2.11'\n"
    assert said in capsys.readouterr().out
