"""Official releases from a local server with the layout of the real sites: what is taken, and what is never taken."""

import asyncio
import hashlib
import io
import os
import platform
import re
import signal
import sys
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from devcluster import downloads, preflight, settings, tools
from devcluster.settings import CHECKOUT
from devcluster.tools import TOOLS, Tool

PROGRAM = b"#!/bin/sh\necho 1.2.3\n" + bytes(range(256)) * 4096
Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Sites:
    """The download sites below one address: a path is content, or a function that answers."""

    def __init__(self) -> None:
        self.content: dict[str, bytes | Answer] = {}
        self.asked: list[str] = []

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(request.path)
        found = self.content.get(request.path)
        if found is None:
            return web.Response(status=404)
        return web.Response(body=found) if isinstance(found, bytes) else await found(request)

    def publish_kubernetes(self, arch: str = "amd64") -> None:
        for program in TOOLS["kubernetes"].programs:
            path = f"/dl.k8s.io/v1.35.4/bin/linux/{arch}/{program}"
            self.content[path] = program.encode() + PROGRAM
            self.content[f"{path}.sha256"] = sha256(program.encode() + PROGRAM).encode()

    def publish_etcd(self, version: str = "v3.6.16", arch: str = "amd64") -> str:
        name = f"etcd-{version}-linux-{arch}"
        archive = tar({f"{name}/etcd": PROGRAM, f"{name}/etcdctl": b"other", f"{name}/Documentation/etcd/README": b"text"})
        folder = f"/github.com/etcd-io/etcd/releases/download/{version}"
        sums = f"{sha256(b'source')}  etcd-{version}.tar.gz\n{sha256(archive)}  {name}.tar.gz\n"
        self.content |= {f"{folder}/{name}.tar.gz": archive, f"{folder}/SHA256SUMS": sums.encode()}
        return f"{folder}/{name}.tar.gz"

    def publish_coredns(self, arch: str = "amd64") -> None:
        archive, name = tar({"coredns": PROGRAM}), f"coredns_1.12.4_linux_{arch}.tgz"
        folder = "/github.com/coredns/coredns/releases/download/v1.12.4"
        self.content |= {
            f"{folder}/{name}": archive,
            f"{folder}/{name}.sha256": f"{sha256(archive)}  release/{name}\n".encode(),
        }

    def publish_pulumi(self, arch: str = "x64") -> None:
        names = ("pulumi", "pulumi-language-python", "pulumi-language-python-exec", "pulumi-language-go")
        archive, name = tar({f"pulumi/{one}": one.encode() for one in names}), f"pulumi-v3.250.0-linux-{arch}.tar.gz"
        folder = "/github.com/pulumi/pulumi/releases/download/v3.250.0"
        self.content |= {
            f"{folder}/{name}": archive,
            f"{folder}/pulumi-3.250.0-checksums.txt": f"{sha256(archive)}  {name}\n".encode(),
        }


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def tar(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


@pytest.fixture
async def sites(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sites]:
    """A server that answers for all sites; this machine is an x86-64 without tools on PATH."""
    served = Sites()
    runner = web.ServerRunner(web.Server(served.answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setattr(settings, "DOWNLOADS", f"http://127.0.0.1:{runner.addresses[0][1]}/")
    monkeypatch.setattr(downloads, "_unreachable", dict[str, str]())
    monkeypatch.setattr(downloads, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    yield served
    await runner.cleanup()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the tools that were built, by a build that makes a file of its own."""
    names: list[str] = []

    async def build(tool: Tool, folder: Path, home: Path) -> None:
        names.append(tool.name)
        assert not list(folder.iterdir())
        for program in tool.programs:
            (folder / program).write_text("built")
            (folder / program).chmod(0o755)

    monkeypatch.setattr(tools, "_build", build)
    return names


@pytest.mark.parametrize(("machine", "arch", "x64"), [("x86_64", "amd64", "x64"), ("aarch64", "arm64", "arm64")])
async def test_every_tool_comes_from_its_release(
    sites: Sites, built: list[str], tmp_path: Path, *, machine: str, arch: str, x64: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(platform, "machine", lambda: machine)
    sites.publish_kubernetes(arch)
    sites.publish_coredns(arch)
    sites.publish_pulumi(x64)
    for version in ("v3.5.21", "v3.6.16", "v3.7.3"):
        sites.publish_etcd(version, arch)
    names = ("kubernetes", "etcd", "etcd36", "etcd37", "coredns", "pulumi")
    assert await tools.to_build(tmp_path, names) == []
    found = await tools.programs(names, tmp_path)
    assert built == []
    for program in TOOLS["kubernetes"].programs:
        assert found[program].read_bytes() == program.encode() + PROGRAM
    assert found["etcd"].read_bytes() == found["coredns"].read_bytes() == PROGRAM
    assert all(os.access(path, os.X_OK) for path in found.values())
    assert {file.name for file in found["etcd"].parent.iterdir()} == {"etcd"}
    cli, host = await tools.ensure_pulumi(tmp_path)
    assert (cli.parent, sorted(file.name for file in host.iterdir())) == (
        host,
        ["pulumi", "pulumi-language-python", "pulumi-language-python-exec"],
    )
    said = [line for line in capsys.readouterr().out.splitlines() if "official release" in line]
    assert len(said) == len(names)
    assert "kubernetes v1.35.4: the official release from dl.k8s.io (6 MB, checksums match)" in said[0]


async def breaks_off(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": str(len(PROGRAM))})
    await response.prepare(request)
    await response.write(PROGRAM[:1000])
    assert request.transport is not None
    request.transport.close()
    return response


async def never_answers(request: web.BaseRequest) -> web.StreamResponse:
    await asyncio.sleep(30)
    return web.Response()


BAD: dict[str, tuple[str, bytes | Answer | None, str]] = {
    "another file": ("kubelet", b"other", r"error: .*: kubelet has SHA-256 \w+, and dl.k8s.io publishes \w+: it is not used"),
    "shortened file": ("kubelet", PROGRAM[:-1], "error: kubernetes v1.35.4: kubelet has SHA-256"),
    "broken off": ("kubelet", breaks_off, r"error: kubernetes v1.35.4: kubelet broke off after 1,000 of 1,[\d,]+ bytes"),
    "no file": ("kubelet", None, "not downloaded, dl.k8s.io answers 404 for v1.35.4/bin/linux/amd64/kubelet;"),
    "no checksum": ("kubelet.sha256", None, "not downloaded, dl.k8s.io answers 404 for v1.35.4/bin/linux/amd64/kubelet.sha256;"),
    "a page in place of a checksum": ("kubelet.sha256", b"<html>Sign in</html>", "kubelet.sha256 holds no SHA-256 of kubelet;"),
}  # fmt: skip


@pytest.mark.parametrize(("file", "content", "said"), BAD.values(), ids=BAD)
async def test_a_file_that_is_not_the_published_one_is_never_used(
    sites: Sites, built: list[str], tmp_path: Path, *, capsys: pytest.CaptureFixture[str],
    file: str, content: bytes | Answer | None, said: str,
) -> None:  # fmt: skip
    sites.publish_kubernetes()
    path = f"/dl.k8s.io/v1.35.4/bin/linux/amd64/{file}"
    if content is None:
        del sites.content[path]
    else:
        sites.content[path] = content
    folder = await tools.ensure("kubernetes", tmp_path)
    assert built == ["kubernetes"]
    assert {program.read_text() for program in folder.iterdir()} == {"built"}
    lines = capsys.readouterr().out
    assert lines.count("building it from source") == 1
    assert re.search(said, lines), lines


async def test_an_archive_without_the_program_is_not_used(sites: Sites, built: list[str], tmp_path: Path) -> None:
    path = sites.publish_etcd()
    archive = tar({"etcd-v3.6.16-linux-amd64/etcdctl": b"other"})
    sites.content[path] = archive
    sites.content[f"{path.rpartition('/')[0]}/SHA256SUMS"] = f"{sha256(archive)}  {path.rpartition('/')[2]}\n".encode()
    await tools.ensure("etcd36", tmp_path)
    assert built == ["etcd36"]


@pytest.mark.parametrize("how", ["silent", "down"])
async def test_a_site_that_does_not_answer_is_asked_once(
    sites: Sites, built: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    sites.publish_kubernetes()
    if how == "silent":
        sites.content["/github.com/etcd-io/etcd/releases/download/v3.6.16/SHA256SUMS"] = never_answers
    else:
        monkeypatch.setattr(settings, "DOWNLOADS", "http://127.0.0.1:9")  # discard: nothing listens
    started = asyncio.get_running_loop().time()
    await tools.programs(("etcd36", "coredns", "kubernetes"), tmp_path)
    assert asyncio.get_running_loop().time() - started < 5
    assert built == (["etcd36", "coredns"] if how == "silent" else ["etcd36", "coredns", "kubernetes"])
    assert sum("github.com" in path for path in sites.asked) == (1 if how == "silent" else 0)


async def test_never_means_that_no_site_is_asked(
    sites: Sites, built: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites.publish_kubernetes()
    monkeypatch.setattr(settings, "DOWNLOADS", "never")
    await tools.ensure("kubernetes", tmp_path)
    assert (built, sites.asked) == (["kubernetes"], [])


async def test_nothing_is_published_for_other_machines(
    sites: Sites, built: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    await tools.ensure("etcd36", tmp_path)
    assert (built, sites.asked) == (["etcd36"], [])


async def test_a_kill_in_the_middle_leaves_nothing_that_is_taken_for_the_program(sites: Sites, tmp_path: Path) -> None:
    path = sites.publish_etcd()
    archive, begun, rest = sites.content[path], asyncio.Event(), asyncio.Event()
    assert isinstance(archive, bytes)

    async def slow(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(archive))})
        await response.prepare(request)
        await response.write(archive[: len(archive) // 2])
        begun.set()
        await rest.wait()
        return response

    sites.content[path] = slow
    home = tmp_path / "home"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from devcluster import tools; tools.main_ensure('etcd36')", cwd=CHECKOUT,
        env={**os.environ, "EBB_HOME": str(home), "EBB_DOWNLOADS": settings.DOWNLOADS},
    )  # fmt: skip
    await asyncio.wait_for(begun.wait(), 60)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    rest.set()
    assert not tools.is_ready("etcd36", home)
    assert not list(home.glob("tools/**/etcd"))
    sites.content[path] = archive
    folder = await tools.ensure("etcd36", home)
    assert (folder / "etcd").read_bytes() == PROGRAM
    assert sorted(file.name for file in (home / "tools").iterdir()) == [folder.name, "etcd36.lock"]


@pytest.mark.parametrize("published", [True, False], ids=["downloads", "no downloads"])
async def test_go_is_wanted_only_for_what_cannot_be_downloaded(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: bool
) -> None:
    if published:
        sites.publish_kubernetes()
        sites.publish_etcd()
        sites.publish_coredns()
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("root_problem", "cgroup_problem", "disk_problem"):
        monkeypatch.setattr(preflight, name, lambda *_: "")
    monkeypatch.setattr(preflight, "missing_packages", list)
    if published:
        await preflight.check(tmp_path / "home")
        return
    with pytest.raises(preflight.PreflightError, match=r"Go is not on PATH.* it builds kubernetes v1\.35\.4, etcd36 v3\.6\.16"):
        await preflight.check(tmp_path / "home")
