"""Pulumi.schema.json: what editors know is what the models know, and no stack of the repository is at odds with it."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra import clouds, config
from infra.config import schema

ROOT = config.ROOT
STACKS = sorted(ROOT.glob("Pulumi.*.yaml"))
KNOWN = {
    "$ref", "additionalProperties", "anyOf", "default", "description", "enum", "examples", "items", "maximum", "minItems",
    "minimum", "not", "pattern", "properties", "propertyNames", "required", "type",
}  # fmt: skip
TYPES = {
    "string": str, "integer": int, "number": int | float, "boolean": bool, "array": list, "object": dict, "null": type(None)
}  # fmt: skip


@cache
def whole() -> dict[str, Any]:
    return schema.schema()


def complaints(node: Any, rule: Any, where: str = "") -> list[str]:
    """A validator for the part of JSON schema that is used here: what is wrong with the node."""
    if isinstance(rule, bool):
        return [] if rule else [f"{where} is not allowed"]
    assert set(rule) <= KNOWN, f"the schema uses more than this validator knows: {set(rule) - KNOWN}"
    found = []
    if "$ref" in rule:
        found += complaints(node, whole()["$defs"][rule["$ref"].rpartition("/")[2]], where)
    if "anyOf" in rule and all(complaints(node, one, where) for one in rule["anyOf"]):
        found.append(f"{where}: nothing fits {node!r}")
    if "not" in rule and not complaints(node, rule["not"], where):
        found.append(f"{where}: {node!r} is excluded")
    if "type" in rule and not isinstance(node, TYPES[rule["type"]]):
        found.append(f"{where}: {node!r} is no {rule['type']}")
    if "enum" in rule and node not in rule["enum"]:
        found.append(f"{where}: {node!r} is none of {rule['enum']}")
    if "pattern" in rule and isinstance(node, str) and not re.search(rule["pattern"], node):
        found.append(f"{where}: {node!r} does not match")
    if isinstance(node, int) and not rule.get("minimum", node) <= node <= rule.get("maximum", node):
        found.append(f"{where}: {node} is out of range")
    return found + _inner(node, rule, where)


def _inner(node: Any, rule: dict[str, Any], where: str) -> list[str]:
    found = []
    if isinstance(node, list):
        found += [f"{where}: too short"] if len(node) < rule.get("minItems", 0) else []
        for index, one in enumerate(node):
            found += complaints(one, rule.get("items", True), f"{where}[{index}]")
    if isinstance(node, dict):
        found += [f"{where}: {key} is missing" for key in rule.get("required", ()) if key not in node]
        for key, one in node.items():
            found += complaints(key, rule.get("propertyNames", True), f"{where}.{key}")
            found += complaints(
                one, rule.get("properties", {}).get(key, rule.get("additionalProperties", True)), f"{where}.{key}"
            )
    return found


def checked(text: str) -> list[str]:
    document = {key: rule for key, rule in whole().items() if key in KNOWN}
    return complaints(yaml.safe_load(text), document)


def test_the_file_is_up_to_date() -> None:
    assert schema.PATH.read_text() == schema.text(), "run `make manifests`"


@pytest.mark.parametrize("path", STACKS, ids=lambda path: path.name)
def test_the_stacks_of_the_repository_fit_and_name_it(path: Path) -> None:
    assert path.read_text().startswith("# yaml-language-server: $schema=Pulumi.schema.json\n")
    assert checked(path.read_text()) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("ebb:zones:", "ebb:zoness:", id="misspelt key"),
        pytest.param("capacity: spot", "capacity: cheap", id="value in a list"),
        pytest.param("max: 4", "max: four", id="type"),
        pytest.param("max: 4", "max: -4", id="range"),
        pytest.param("    zone: local-a\n", "", id="needed key"),
        pytest.param("ebb:cloud: local", "ebb:cloud: locall", id="cloud"),
    ],
)
def test_an_editor_shows_what_is_wrong(old: str, new: str) -> None:
    text = (ROOT / "Pulumi.local.yaml").read_text()
    assert old in text
    assert checked(text.replace(old, new, 1))


def test_every_key_has_its_sentence() -> None:
    assert list(_undescribed(whole())) == []


def _undescribed(node: Any, where: str = "") -> Iterator[str]:
    if not isinstance(node, dict):
        return
    for key, one in node.get("properties", {}).items():
        if key != "config" and "description" not in one:
            yield f"{where}.{key}"
    for key, one in node.items():
        yield from _undescribed(one, f"{where}.{key}")


def test_sections_of_all_clouds_are_in_it() -> None:
    keys = whole()["properties"]["config"]["properties"]
    assert {f"ebb:{cloud}" for cloud in clouds.names()} <= set(keys)
    assert not [key for key in keys if "<" in key]
