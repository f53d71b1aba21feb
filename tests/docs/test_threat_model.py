"""docs/threat-model.md: every test and every rule that it names exists."""

import re
from fnmatch import fnmatchcase

from infra import clouds
from infra.policies import cluster
from tests.docs.tree import ROOT

PAGE = (ROOT / "docs" / "threat-model.md").read_text()
SPANS = re.findall(r"`([^`\n]+)`", PAGE)
RULES = {rule.name for rule in (*cluster.RULES, *(one for name in clouds.names() for one in clouds.named(name).rules()))}


def test_the_page_is_short() -> None:
    assert len(PAGE.splitlines()) <= 150


def test_every_test_that_it_names_exists() -> None:
    named = {span for span in SPANS if span.startswith("test_")}
    there = {name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}
    assert len(named) > 20
    assert named - there == set()


def test_every_rule_that_it_names_exists() -> None:
    prefixes = ("cluster-", "*-", *(f"{name}-" for name in clouds.names()))
    named = {span for span in SPANS if span.startswith(prefixes)} - {"cluster-admin"}
    assert len(named) > 10
    assert {one for one in named if not any(fnmatchcase(rule, one) for rule in RULES)} == set()
