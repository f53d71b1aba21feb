"""README.md is short, and names only what exists; the links of the other pages lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from ebb.cli.app import app
from tests.docs.tree import ROOT

README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "trainer" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE_SPANS = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", README, re.S))


def test_the_readme_has_at_most_200_lines() -> None:
    assert len(README.splitlines()) <= 200


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()) if not re.match(r"[a-z]+:", link)]
    assert [link for link in links if not _leads_somewhere(page, link)] == []


def _leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path) if path else page
    return target.exists() and (not anchor or anchor in _anchors(target))


def _anchors(page: Path) -> list[str]:
    """Make them of headings as GitHub does: lower case, no punctuation, a hyphen for each space."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"\bmake ([a-z][a-z0-9-]*)", CODE_SPANS))
    assert {"demo", "test", "down"} <= named
    assert named - targets == set()


def test_every_verb_of_ebb_exists() -> None:
    verbs = set(typer.main.get_command(app).list_commands(None))  # type: ignore[attr-defined]
    table = README.split("| `ebb` | |")[1].split("\n\n")[0]
    rows = {verb for row in table.splitlines()[2:] for verb in re.findall(r"`([a-z]+)`", row.split("|")[1])}
    named = set(re.findall(r"(?<![\w./-])(?<!from )ebb ([a-z]+)", CODE_SPANS)) | rows
    assert {"submit", "local", "status"} <= named
    assert named - verbs == set()
    assert verbs - rows <= {"completion"}, "the table of verbs lacks some"


def test_every_verb_of_the_devcluster_exists() -> None:
    command = [sys.executable, "-m", "devcluster", "--help"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    named = set(re.findall(r"python -m devcluster ([a-z]+)", CODE_SPANS)) | {"restore"}
    assert named - set(re.findall(r"^ +([a-z]+)", listed, re.M)) == set()


def test_the_two_scripts_are_python() -> None:
    stock, elastic = re.findall(r"```python\n(.*?)```", README, re.S)
    compile(stock, "stock", "exec")
    compile(stock.split("dist.init_process_group")[0] + elastic, "elastic", "exec")


def test_the_difference_between_the_example_scripts_is_counted() -> None:
    """As `diff -wB` counts it: lines removed and lines added, spaces apart."""
    pair = [str(ROOT / "trainer" / "examples" / "images" / name) for name in ("stock.py", "elastic.py")]
    lines = subprocess.run(["diff", "-wB", *pair], capture_output=True, text=True, check=False).stdout.splitlines()
    removed, added = (sum(line.startswith(sign) for line in lines) for sign in "<>")
    assert f"{removed} lines removed and {added} added" in " ".join(README.split())
