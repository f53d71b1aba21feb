"""Which build of a tool a folder holds, and when a program on PATH will do."""

from pathlib import Path

import pytest

from devcluster import tools
from devcluster.tools import TOOLS, Tool, ToolError


@pytest.mark.parametrize(
    ("go_mod", "version"),
    [
        ("module x\n\nrequire example.org/tool v1.2.3 // indirect\n", "v1.2.3"),
        ("module x\n\nrequire (\n\texample.org/tool/sub v9.9.9\n\texample.org/tool v1.2.3\n)\n", "v1.2.3"),
    ],
    ids=["one line", "block with a longer name"],
)
def test_version_of_a_module(go_mod: str, version: str) -> None:
    assert tools.module_version(go_mod, "example.org/tool") == version


def test_a_go_mod_without_the_module_says_what_to_do() -> None:
    with pytest.raises(ToolError, match="git checkout devcluster/tools"):
        tools.module_version("module x\n", "example.org/tool")


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """A tool of one program."""
    folder = tmp_path / "modules" / "tool"
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text("module x\nrequire example.org/tool v1.2.3\n")
    (folder / "go.sum").write_text("sums\n")
    monkeypatch.setattr(tools, "MODULES", tmp_path / "modules")
    made = Tool(name="tool", module="example.org/tool", packages=("example.org/tool/cmd",), programs=("tool",))
    monkeypatch.setitem(TOOLS, "tool", made)
    return made


@pytest.mark.parametrize("file", ["go.mod", "go.sum"])
def test_another_pin_is_another_folder(tool: Tool, file: str) -> None:
    before = tool.key
    assert before.startswith("tool-v1.2.3-")
    path = tool.folder / file
    path.write_text(path.read_text() + "\n")
    assert tool.key != before


def test_another_way_of_building_is_another_folder(tool: Tool) -> None:
    other = Tool(name="tool", module=tool.module, packages=tool.packages, programs=tool.programs, ldflags="-X a.b={version}")
    assert other.key != tool.key
    assert other.linker_flags == "-s -w -X a.b=v1.2.3"


@pytest.mark.parametrize(
    ("printed", "is_used"),
    [("tool Version: 1.2.3", True), ("tool v1.2.3 linux/amd64", True), ("tool 1.2.30", False), ("tool 1.2.3-rc.1", False)],
    ids=["same", "same with v", "longer number", "release candidate"],
)
async def test_only_the_right_version_on_path_is_used(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, is_used: bool
) -> None:
    program = tmp_path / "bin" / "tool"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{printed}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    assert await tools.are_available(tmp_path / "home", ("tool",)) is is_used
    if is_used:
        folder = await tools.ensure("tool", tmp_path / "home")
        assert (folder / "tool").resolve() == program
        assert tools.is_ready("tool", tmp_path / "home")
        program.unlink()
        assert not tools.is_ready("tool", tmp_path / "home")


async def test_without_go_the_error_says_which(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match=r"tool v1\.2\.3 has to be built and Go is not on PATH: install Go 1\.25 or newer"):
        await tools.ensure("tool", tmp_path / "home")
    assert not tools.is_ready("tool", tmp_path / "home")


def test_the_pins_that_the_stack_relies_on() -> None:
    assert {name: tool.version for name, tool in TOOLS.items()} == {
        "kubernetes": "v1.35.4",
        "etcd": "v3.5.21",
        "etcd36": "v3.6.16",
        "etcd37": "v3.7.3",
        "coredns": "v1.12.4",
        "pulumi": "v3.250.0",
        "pulumi-language-python": "v3.79.0",
    }
    assert "-X k8s.io/component-base/version.gitMinor=35" in TOOLS["kubernetes"].linker_flags
