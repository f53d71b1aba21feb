"""What the layout promises: a cloud's name is written in its own module alone."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

INFRA = Path(__file__).parent.parent.parent / "infra"
NAMES = ("aws", "amazon", "eks", "gcp", "gke", "google", "azure", "aks")
SHARED = sorted(path for path in INFRA.rglob("*.py") if path.relative_to(INFRA).parts[0] != "clouds")


def words(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Names, attributes, imports and texts of a module, without its docstrings."""
    prose = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
        and isinstance(node.body[0].value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.lineno, node.value
        elif isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield node.lineno, " ".join([getattr(node, "module", None) or "", *(name.name for name in node.names)])


@pytest.mark.parametrize("path", SHARED, ids=[str(path.relative_to(INFRA)) for path in SHARED])
def test_no_cloud_is_named_outside_its_module(path: Path) -> None:
    found = [
        f"{path.name}:{line}: {text}"
        for line, text in words(ast.parse(path.read_text()))
        if {part for part in NAMES if part in text.lower().replace("/", " ").replace(".", " ").replace("-", " ").split()}
    ]
    assert not found, "differences between clouds are data in the records of infra/cloud.py"
