"""The shape of the product's code: no circles between modules, few tiny files, no name for three things."""

import ast
import subprocess
from collections import defaultdict
from functools import cache
from pathlib import Path

from tests.docs.tree import ROOT, syntax

PACKAGES = ("ebb", "infra", "workloads", "trainer", "devcluster", "testing", "hydra_plugins")
TINY_LINES = 80  # a file below it that one other file imports is a part of that one, unless there is a reason
MOST_TINY = 25
MOST_OF_A_NAME = 2  # outside of the clouds, where the same name in each is the point


@cache
def modules() -> dict[str, ast.Module]:
    """Module name -> its syntax tree."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    found = (path for path in map(Path, listed) if path.parts[0] in PACKAGES and (ROOT / path).exists())
    names = {path: ".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in found}
    return {name: syntax(path.as_posix()) for path, name in names.items()}


def is_package(module: str) -> bool:
    return (ROOT / module.replace(".", "/")).is_dir()


@cache
def imports() -> dict[str, set[str]]:
    """Module -> the modules of ours that it imports anywhere, for type checkers alone too."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names if alias.name in modules()}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                found[name] |= inner & modules().keys() or {node.module} & modules().keys()
        found[name].discard(name)
    return found


def circles() -> list[list[str]]:
    """Groups of modules that import each other, by Tarjan's algorithm (strongly connected components of two or more)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(imports()[node]):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            at = stack.index(node)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(modules()):
        if node not in index:
            visit(node)
    return found


def test_no_circles() -> None:
    assert circles() == []


def test_few_tiny_files_with_one_importer() -> None:
    importers = defaultdict(set)
    for name, others in imports().items():
        for other in others:
            importers[other].add(name)
    lines = {name: (ROOT / f"{name.replace('.', '/')}.py") for name in modules() if not is_package(name)}
    tiny = [
        f"{name} <- {next(iter(importers[name]))}"
        for name, path in lines.items()
        if len(importers[name]) == 1
        and path.name != "__main__.py"
        # A cloud imports its parts when it is asked for them, so that nobody needs an SDK before.
        and not (name.startswith("infra.clouds.") and importers[name] == {name.rpartition(".")[0]})
        and len(path.read_text().splitlines()) < TINY_LINES
    ]
    assert len(tiny) <= MOST_TINY, "\n".join(tiny)


def test_a_class_name_means_one_thing() -> None:
    places = defaultdict(list)
    for name, tree in modules().items():
        if not name.startswith("infra.clouds."):
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(name)
    assert {name: where for name, where in places.items() if len(where) > MOST_OF_A_NAME} == {}
