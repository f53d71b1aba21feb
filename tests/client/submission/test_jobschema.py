"""The published schema says what the reader of job files says: what it takes is taken, what it refuses is refused."""

import re
from typing import Any

import pytest

from ebb.client.errors import BadRequest
from ebb.client.submission import jobschema
from ebb.client.submission.jobfile import KEYS, request_of
from ebb.client.submission.request import check


def test_every_key_is_there_with_a_sentence() -> None:
    assert set(jobschema.schema()["properties"]) == set(KEYS)
    assert all(each["description"].endswith((".", ";", "Z.")) for each in jobschema.PROPERTIES.values())


CASES: dict[str, tuple[dict[str, Any], bool]] = {
    "all of it": (
        {
            "name": "exp1", "gpus": 2, "min": 1, "max": 4, "gpu": "T4", "zone": "a", "capacity": "spot-then-on-demand",
            "image": "x:1", "shm": "1Gi", "data": "digits", "code": ".", "priority": "elastic", "max-cost": 4.5, "queue": "gpus",
            "deadline": "12h", "env": {"LR": 0.1, "NAME": "x"}, "command": ["python", "train.py", 1],
        },
        True,
    ),
    "secrets": ({"secret": ["hf-token", "a=B", "gcs=/keys/gcs"], "registry-secret": "lab", "command": "x.py"}, True),
    "one secret": ({"secret": "HF_TOKEN", "command": "x.py"}, True),
    "a secret with its value": ({"secret": ["hf-token=hf_abc"], "command": "x.py"}, False),
    "secrets as a mapping": ({"secret": {"HF_TOKEN": "x"}, "command": "x.py"}, False),
    "a secret at no path": ({"secret": "gcs=keys/gcs", "command": "x.py"}, False),
    "an odd login": ({"registry-secret": "ghcr.io/x", "command": "x.py"}, False),
    "progress by the log": ({"progress-regex": r"step (?P<step>\d+)", "command": "x.py"}, True),
    "progress without steps": ({"progress-regex": r"loss (?P<loss>\S+)", "command": "x.py"}, False),
    "a command as text": ({"command": "python train.py"}, True),
    "a name": ({"name": "My_Job", "command": "x.py"}, False),
    "no count": ({"gpus": "two", "command": "x.py"}, False),
    "half a count": ({"gpus": 1.5, "command": "x.py"}, False),
    "zero": ({"gpus": 0, "command": "x.py"}, False),
    "a capacity": ({"capacity": "cheap", "command": "x.py"}, False),
    "a priority": ({"priority": "system", "command": "x.py"}, False),
    "a queue": ({"queue": "My Queue", "command": "x.py"}, False),
    "no money": ({"max-cost": 0, "command": "x.py"}, False),
    "a variable of ours": ({"env": {"EBB_JOB": "x"}, "command": "x.py"}, False),
    "an odd variable": ({"env": {"L-R": "x"}, "command": "x.py"}, False),
    "a list of variables": ({"env": ["A"], "command": "x.py"}, False),
    "an unknown key": ({"gpu_type": "T4", "command": "x.py"}, False),
    "a truth for a text": ({"gpu": True, "command": "x.py"}, False),
}  # fmt: skip


@pytest.mark.parametrize(("file", "good"), CASES.values(), ids=CASES)
def test_schema_and_reader_agree(file: dict[str, Any], good: bool) -> None:
    assert fits(jobschema.schema(), file) is good
    assert taken(file) is good


def taken(file: dict[str, Any]) -> bool:
    try:
        check(request_of(file, {}, (), "ab12"))
    except BadRequest:
        return False
    return True


TYPES = {"string": str, "integer": int, "number": int | float, "boolean": bool, "object": dict, "array": list}


def fits(schema: dict[str, Any], value: Any) -> bool:
    """As much of JSON Schema as ours uses; a keyword that is not known here fails the test."""
    return all(RULES[keyword](rule, value, schema) for keyword, rule in schema.items() if keyword not in WORDS)


def is_of(rule: Any, value: Any, schema: dict[str, Any]) -> bool:
    names = rule if isinstance(rule, list) else [rule]
    return any(isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool)) for name in names)


WORDS = {"$schema", "title", "description", "default"}
RULES: dict[str, Any] = {
    "type": is_of,
    "enum": lambda rule, value, _: value in rule,
    "pattern": lambda rule, value, _: not isinstance(value, str) or re.search(rule, value) is not None,
    "maxLength": lambda rule, value, _: not isinstance(value, str) or len(value) <= rule,
    "minimum": lambda rule, value, _: not isinstance(value, int) or value >= rule,
    "exclusiveMinimum": lambda rule, value, _: not isinstance(value, int | float) or value > rule,
    "minItems": lambda rule, value, _: not isinstance(value, list) or len(value) >= rule,
    "items": lambda rule, value, _: not isinstance(value, list) or all(fits(rule, item) for item in value),
    "anyOf": lambda rule, value, _: any(fits(each, value) for each in rule),
    "properties": lambda rule, value, _: all(fits(rule[key], item) for key, item in value.items() if key in rule),
    "propertyNames": lambda rule, value, _: not isinstance(value, dict) or all(fits(rule, key) for key in value),
    "additionalProperties": lambda rule, value, schema: not isinstance(value, dict) or all(
        fits(rule, item) if rule else False for key, item in value.items() if key not in schema.get("properties", {})
    ),
}  # fmt: skip
