"""The programs of Kubernetes and Pulumi: official releases where they can be downloaded, else built from pinned Go modules.

    folder = await tools.ensure("kubernetes")     # .../tools/kubernetes-v1.35.4-<hash>/ with kube-apiserver, kubelet, kubectl ...

The pins are in devcluster/tools/<tool>/go.mod, for both ways. A program of the right version on PATH is used instead (the folder
then links to it). Safe to run at once from several places and to kill. What Debian has comes from Debian: preflight.py.
"""

import asyncio
import hashlib
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from devcluster.commands import CommandError, locked, run, say, watch
from devcluster.downloads import Release, download, is_offered
from devcluster.settings import CHECKOUT, EBB_HOME, BoxError

MODULES = CHECKOUT / "devcluster" / "tools"
GO_VERSION = (1, 25)  # what the go.mod files ask for


class ToolError(BoxError):
    """A tool could not be built."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """`module` carries the version in go.mod; `packages` are built, each into a program of `programs`' name at the same place."""

    name: str
    module: str
    packages: tuple[str, ...]
    programs: tuple[str, ...]
    version_args: tuple[str, ...] = ("--version",)
    ldflags: str = ""
    tags: str = ""
    """Go's build tags, for a program that can be built without parts that nobody needs here."""
    scripts: tuple[str, ...] = ()
    """Files of the module that belong beside the program, relative to the module's root."""
    release: Release | None = None
    """The project's published programs; default: none, they are always built."""
    modules: Path | None = None
    """Where the folder with this tool's go.mod is, for tools that only a benchmark needs; default: MODULES."""

    @property
    def folder(self) -> Path:
        return (self.modules or MODULES) / self.name

    @property
    def version(self) -> str:
        return module_version((self.folder / "go.mod").read_text(), self.module)

    @property
    def linker_flags(self) -> str:
        major, minor, _ = self.version.removeprefix("v").split(".", 2)
        return f"-s -w {self.ldflags.format(version=self.version, major=major, minor=minor)}".strip()

    @property
    def key(self) -> str:
        """Names the folder; another go.mod, go.sum or way of building makes another folder."""
        parts = [(self.folder / file).read_bytes() for file in ("go.mod", "go.sum")]
        recipe = repr((self.packages, self.programs, self.linker_flags, self.scripts, *filter(None, (self.tags,)))).encode()
        return f"{self.name}-{self.version}-{hashlib.sha256(b'|'.join([*parts, recipe])).hexdigest()[:10]}"


_KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")

TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            name="kubernetes",
            module="k8s.io/kubernetes",
            packages=tuple(f"k8s.io/kubernetes/cmd/{name}" for name in _KUBERNETES),
            programs=_KUBERNETES,
            # Without these the server calls itself v0.0.0 and clients warn about the skew.
            ldflags="-X {0}.gitVersion={{version}} -X {0}.gitMajor={{major}} -X {0}.gitMinor={{minor}}".format(
                "k8s.io/component-base/version"
            ),
            release=Release(
                site="dl.k8s.io", folder="{version}/bin/linux/{arch}", file="{program}", checksums="{file}.sha256"
            ),
        ),
        *(
            # `etcd36` is the platform's, `etcd` the one for unmodified images (ebb:legacyRendezvous); the trainer's rendezvous is
            # proved on all (tests/elastic/rendezvous).
            Tool(
                name=name, module="go.etcd.io/etcd/server/v3", packages=("go.etcd.io/etcd/server/v3",), programs=("etcd",),
                release=Release(
                    site="github.com",
                    folder="etcd-io/etcd/releases/download/{version}",
                    file="etcd-{version}-linux-{arch}.tar.gz",
                    checksums="SHA256SUMS",
                ),
            )
            for name in ("etcd", "etcd36", "etcd37")
        ),
        Tool(
            name="coredns",
            module="github.com/coredns/coredns",
            packages=("github.com/coredns/coredns",),
            programs=("coredns",),
            version_args=("-version",),
            release=Release(
                site="github.com",
                folder="coredns/coredns/releases/download/{version}",
                file="coredns_{number}_linux_{arch}.tgz",
                checksums="{file}.sha256",
            ),
        ),
        Tool(
            name="pulumi",
            module="github.com/pulumi/pulumi/pkg/v3",
            packages=("github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",),
            programs=("pulumi",),
            version_args=("version",),
            ldflags="-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version={version}",
            release=Release(
                site="github.com",
                folder="pulumi/pulumi/releases/download/{version}",
                file="pulumi-{version}-linux-{arch}.tar.gz",
                checksums="pulumi-{number}-checksums.txt",
                amd64="x64",
                beside=("pulumi-language-python", "pulumi-language-python-exec"),
            ),
        ),
        Tool(
            name="pulumi-language-python",
            module="github.com/pulumi/pulumi/sdk/v3",
            packages=("github.com/pulumi/pulumi/sdk/v3/python/cmd/pulumi-language-python",),
            programs=("pulumi-language-python",),
            scripts=("python/cmd/pulumi-language-python-exec",),  # published beside the CLI: see ensure_pulumi()
        ),
    )
}  # fmt: skip
# One etcd for the control plane and for the jobs: Kubernetes 1.35 is content with the one that the platform wants.
BOX_TOOLS = ("kubernetes", "etcd36", "coredns")
LEGACY_ETCD = "etcd"  # with the v2 API, for torch's own rendezvous: built where somebody asks for it


def folder_of(name: str | Tool, home: Path = EBB_HOME) -> Path:
    """The folder where the tool is or will be."""
    return home / "tools" / _tool(name).key


def is_ready(name: str | Tool, home: Path = EBB_HOME) -> bool:
    folder = folder_of(name, home)
    return all(os.access(folder / program, os.X_OK) for program in _tool(name).programs)


async def are_available(home: Path = EBB_HOME, names: tuple[str, ...] = BOX_TOOLS) -> bool:
    """True if nothing has to be downloaded or built."""
    return all([is_ready(name, home) or bool(await _on_path(TOOLS[name])) for name in names])


async def to_build(home: Path = EBB_HOME, names: tuple[str, ...] = BOX_TOOLS) -> list[Tool]:
    """The tools that are neither on this machine nor offered for download."""
    absent = [TOOLS[name] for name in names if not await are_available(home, (name,))]
    return [tool for tool in absent if not (tool.release and await is_offered(tool.release, tool.version, tool.programs))]


async def ensure(name: str | Tool, home: Path = EBB_HOME) -> Path:
    """The folder with the tool's programs; gets them when they are not there. `name` is one of TOOLS, or a tool of the
    caller's own. Raises ToolError."""
    tool, folder = _tool(name), folder_of(name, home)
    if is_ready(tool, home):
        return folder
    async with locked(folder.with_name(f"{tool.name}.lock"), f"the build of {tool.name}"):
        if is_ready(tool, home):
            return folder
        for stale in folder.parent.glob(f".{tool.name}-*.partial"):
            shutil.rmtree(stale)
        partial = Path(tempfile.mkdtemp(prefix=f".{tool.name}-", suffix=".partial", dir=folder.parent))
        partial.chmod(0o755)
        found = await _on_path(tool)
        if found:
            for program, path in found.items():
                (partial / program).symlink_to(path)
            say(f"{tool.name} {tool.version}: found on PATH")
        elif tool.release is None or not await download(
            f"{tool.name} {tool.version}", tool.release, tool.version, tool.programs, partial
        ):
            await _build(tool, partial, home)
        if folder.exists():  # it held links to programs that are no more
            shutil.rmtree(folder)
        partial.replace(folder)
    return folder


async def programs(names: tuple[str, ...] = BOX_TOOLS, home: Path = EBB_HOME) -> dict[str, Path]:
    """Files of all programs of the tools, one tool after the other: a build uses all cores, a download the whole line."""
    found: dict[str, Path] = {}
    for name in names:
        folder = await ensure(name, home)
        found |= {program: folder / program for program in TOOLS[name].programs}
    return found


async def ensure_pulumi(home: Path = EBB_HOME) -> tuple[Path, Path]:
    """The Pulumi CLI, and the folder of its Python host: the same one where both are of an official release."""
    cli = (await ensure("pulumi", home) / "pulumi").resolve()
    host = TOOLS["pulumi-language-python"]
    return cli, cli.parent if (cli.parent / host.name).exists() else await ensure(host, home)


async def go_problem() -> str:
    """The reason why Go cannot build here, or ""."""
    need = ".".join(map(str, GO_VERSION))
    if shutil.which("go") is None:
        return f"Go is not on PATH: install Go {need} or newer and put its bin folder on PATH"
    printed = await run("go", "env", "GOVERSION")
    version = re.match(r"go(\d+)\.(\d+)", printed)
    # From 1.21 on an older Go fetches the newer one that a go.mod asks for.
    if version and (int(version[1]), int(version[2])) < (1, 21):
        return f"Go on PATH is {printed.strip()}: install Go {need} or newer"
    return ""


def module_version(go_mod: str, module: str) -> str:
    """The version that a go.mod requires of a module."""
    found = re.search(rf"^(?:require)?\s*{re.escape(module)} (v\S+)", go_mod, re.MULTILINE)
    if found is None:
        raise ToolError(
            f"go.mod does not require {module}: restore devcluster/tools from the repository (git checkout devcluster/tools)"
        )
    return found[1]


def _tool(name: str | Tool) -> Tool:
    return TOOLS[name] if isinstance(name, str) else name


async def _on_path(tool: Tool) -> dict[str, Path]:
    """The tool's programs on PATH, if all are there in the right version; a tool with scripts of its own is always built."""
    # Without the launcher of `source ./env`: it would ask us for the very program that we look for.
    others = [
        folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder != str(CHECKOUT / "devcluster/pulumi/bin")
    ]
    paths = {program: shutil.which(program, path=os.pathsep.join(others)) for program in tool.programs}
    if tool.scripts or not all(paths.values()):
        return {}
    for path in paths.values():
        try:
            printed = await run(str(path), *(tool.version_args if not str(path).endswith("kubectl") else ("version", "--client")))
        except CommandError:
            return {}
        if tool.version.removeprefix("v") not in re.findall(r"\d+\.\d+\.\d+[\w.+-]*", printed):
            return {}
    return {program: Path(str(path)).resolve() for program, path in paths.items()}


async def _build(tool: Tool, folder: Path, home: Path) -> None:
    if problem := await go_problem():
        raise ToolError(f"{tool.name} {tool.version} has to be built and {problem}")
    # A single program is named here: Go names it after its folder, which for etcd is "server".
    output = f"{folder}/{tool.programs[0] if len(tool.programs) == 1 else ''}"
    # The build shares the machine with the installation of torch, and with the control plane of a second run.
    args = ["nice", "-n", "10", "go", "build", "-v", "-trimpath", "-tags", tool.tags, "-ldflags", tool.linker_flags]
    args += ["-o", output, *tool.packages]
    log = home / "tools" / f"{tool.name}.log"
    try:
        await watch(f"building {tool.name} {tool.version}", args, log=log, cwd=tool.folder, env=_go_environment())
        for script in tool.scripts:
            root = (await run("go", "list", "-C", str(tool.folder), "-m", "-f", "{{.Dir}}", tool.module)).strip()
            shutil.copy(Path(root) / script, folder)
            (folder / Path(script).name).chmod(0o755)
    except CommandError as error:
        raise ToolError(
            f"{error}\nIf modules cannot be downloaded, see `go env GOPROXY`; the next run goes on where this one stopped"
        ) from error


@cache
def _go_environment() -> dict[str, str]:
    return {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}


def main_ensure(name: str) -> Path:
    """`ensure` for callers without an event loop."""
    return asyncio.run(ensure(name))
