"""The committed texts that the tests of the documents read, and the syntax trees of those that are Python."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = ("ebb", "infra", "workloads", "trainer", "devcluster", "testing", "hydra_plugins", "benchmarks")
SUFFIXES = {".py", ".md", ".yaml", ".toml", ".txt"}


@cache
def texts() -> dict[str, str]:
    """Product code, documents and the settings beside them, by their path from the root. Tests are not among them."""
    code = (path for folder in CODE for path in (ROOT / folder).rglob("*"))
    beside = (ROOT / name for name in ("README.md", "Makefile", "__main__.py", "env", "pyproject.toml"))
    found = [*code, *(ROOT / "docs").glob("*.md"), *ROOT.glob("Pulumi*.yaml"), *beside]
    return {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for path in sorted(found)
        if path.is_file() and (path.suffix in SUFFIXES or path.parent == ROOT)
    }


@cache
def syntax(path: str) -> ast.Module:
    """The tree of a file, by its path from the root: parsed once for all who walk through it, and changed by none."""
    return ast.parse((ROOT / path).read_text())
