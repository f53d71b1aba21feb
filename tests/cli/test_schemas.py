"""The schemas of `-o json`: in step with the code, one for each verb, and what our own checker of them can tell."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from ebb.cli.app import VERBS, app
from ebb.cli.schemas import DOCUMENTS, FOLDER, _Made, document, text
from tests.cli.conforming import OTHERS, check, misfit
from tests.cli.test_look import RUNNING
from tests.cli.world import FakeKube, platform_map, session

SILENT = {"completion"}  # prints what a shell reads


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_files_are_those_of_the_code(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text() == text(name), "run `make manifests`, and look at what changes for scripts"


def test_every_verb_with_json_has_a_schema() -> None:
    told = {name.partition("-")[0] for name in DOCUMENTS} | set(OTHERS)
    assert set(VERBS) - SILENT <= told


FITS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "text": ("a", {"type": "string"}, ""),
    "a number for a text": (1, {"type": "string"}, "$ is 1, no string"),
    "true is no number": (True, {"type": "integer"}, "$ is True, no integer"),
    "a whole number": (1, {"type": "number"}, ""),
    "none": (None, {"anyOf": [{"type": "string"}, {"type": "null"}]}, ""),
    "one of": ("c", {"enum": ["a", "b"]}, "$ is 'c', none of ['a', 'b']"),
    "in a list": ([1, "x"], {"type": "array", "items": {"type": "integer"}}, "$[] is 'x', no integer"),
    "a pair": ([1], {"type": "array", "prefixItems": [{}, {}]}, "$ has 1 items, not 2"),
    "lacking": ({}, {"type": "object", "required": ["a"], "properties": {"a": {}}}, "$ lacks a"),
    "strange": ({"b": 1}, {"type": "object", "properties": {}}, "$ has b, of which no schema tells"),
    "a map": ({"b": 1}, {"type": "object", "additionalProperties": {"type": "integer"}}, ""),
}


@pytest.mark.parametrize(("found", "schema", "complaint"), FITS.values(), ids=FITS)
def test_misfits(found: Any, schema: dict[str, Any], complaint: str) -> None:
    assert misfit(found, schema) == complaint


def test_a_document_that_no_schema_has_fails_every_test() -> None:
    printed = CliRunner().invoke(app, ["status", "digits", "-o", "json"], obj=session(FakeKube(platform_map(), RUNNING))).stdout
    whole = json.loads(printed)
    whole["job"]["colour"] = "green"
    with pytest.raises(AssertionError, match=r"\$\.job has colour, of which no schema tells"):
        check(["status", "digits", "-o", "json"], json.dumps(whole))
    del whole["job"]["colour"], whole["job"]["loss"]
    with pytest.raises(AssertionError, match=r"\$\.job lacks loss"):
        check(["status", "digits", "-o", "json"], json.dumps(whole))


def test_what_json_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match=r"bytes.* has no JSON form"):
        _Made().of(bytes)


def test_a_recursive_record_ends() -> None:
    assert document("status")["$defs"]["JobView"]["properties"]["history"]["items"] == {"$ref": "#/$defs/Happening"}
