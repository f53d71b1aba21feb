"""What the layout promises: a cloud's name is written in its own module alone, and nothing else does this or that by it.

Two rules. What all clouds of infra share does not write a cloud's name at all. The other packages may (labels and taints have
them), but not as a value that something is compared with, looked up by or chosen from. Beside infra/clouds there are two places
that are about clouds by their purpose: ebb/metadata, which asks the machine whose it is and has one file for each, and
testing/pulumi/mocks, which plays the clouds' providers. That no code imports a cloud's module is a contract in pyproject.toml.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
NAMES = frozenset({"aws", "amazon", "eks", "gcp", "gke", "google", "azure", "aks"})
# What infra has of them under further names.
PRODUCTS = frozenset({"ec2", "ecr", "efs", "fsx", "eksbuild", "codebuild", "karpenter", "gce", "filestore", "acr"})
ABOUT_CLOUDS = ("infra/clouds", "ebb/metadata", "testing/pulumi/mocks")


def files(*packages: str) -> list[str]:
    """Those that are not about clouds, by their paths."""
    found = (path.relative_to(ROOT).as_posix() for package in packages for path in sorted((ROOT / package).rglob("*.py")))
    return [path for path in found if not path.startswith(ABOUT_CLOUDS)]


def prose(tree: ast.AST) -> set[int]:
    """The docstrings."""
    return {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
        and isinstance(node.body[0].value, ast.Constant)
    }


def words(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Names, attributes, imports and texts of a module, without its docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield node.lineno, " ".join([getattr(node, "module", None) or "", *(name.name for name in node.names)])
    yield from texts(tree)


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts alone."""
    skipped = prose(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def naming(source: str) -> list[str]:
    """Where a module writes a cloud's name."""
    return [
        f"line {line}: {text}"
        for line, text in words(ast.parse(source))
        if (NAMES | PRODUCTS) & set(re.split(r"[^a-z0-9]+", text.lower()))
    ]


def choosing(source: str) -> list[str]:
    """Where a module has a cloud's name as a value."""
    return [f"line {line}: {text}" for line, text in texts(ast.parse(source)) if text.lower() in NAMES]


@pytest.mark.parametrize("path", files("infra"))
def test_no_cloud_is_named_by_what_all_share(path: str) -> None:
    found = naming((ROOT / path).read_text())
    assert not found, f"{path}: {found}: differences between clouds are data in the records of infra/cloud.py"


@pytest.mark.parametrize("package", ["workloads", "ebb", "trainer", "devcluster", "benchmarks"])
def test_nothing_elsewhere_depends_on_a_clouds_name(package: str) -> None:
    found = {path: one for path in files(package) if (one := choosing((ROOT / path).read_text()))}
    assert not found, "what differs between clouds comes as data, in ebb-platform"


@pytest.mark.parametrize(
    "source",
    [
        'if cloud == "gcp": pass',
        "import pulumi_aws",
        "from infra.clouds import azure",
        'KIND = {"aws": 1}[cloud]',
        "match cloud:\n    case 'azure': pass",
        'graces = aws_grace("x")',
        'KARPENTER = "karpenter"',
    ],
)
def test_the_first_rule_sees(source: str) -> None:
    assert naming(source)


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ('if cloud == "gcp": pass', True),
        ('KIND = {"aws": 1}[cloud]', True),
        ("match cloud:\n    case 'azure': pass", True),
        ('TAINT = "aws-node-termination-handler/spot-itn"', False),
        ('"""As on aws."""', False),
    ],
)
def test_the_second_rule_sees(source: str, seen: bool) -> None:
    assert bool(choosing(source)) == seen
