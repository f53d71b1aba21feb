"""docs/job.schema.json, by which editors complete and check job files (`make manifests`).

# yaml-language-server: $schema=../docs/job.schema.json         as the first line of a job file: a path or an address
"""

import json
from pathlib import Path
from typing import Any

from ebb.client.submission.jobfile import CAPACITIES, KEYS
from ebb.client.submission.request import PRIORITIES

PATH = Path(__file__).parents[3] / "docs" / "job.schema.json"
_TEXT, _COUNT = {"type": "string"}, {"type": "integer", "minimum": 1}
_SCALAR = {"type": ["string", "number", "boolean"]}
_SECRET_NAME = "[A-Za-z]([-_A-Za-z0-9]*[A-Za-z0-9])?"  # noqa: S105 - a name
_SECRET = {"type": "string", "pattern": f"^{_SECRET_NAME}(=([A-Z_][A-Z0-9_]*|/.+))?$"}

PROPERTIES: dict[str, dict[str, Any]] = {
    "name": {
        "description": "The job's name. Default: the program's and four letters.",
        "type": "string",
        "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$",
        "maxLength": 54,
    },
    "gpus": {"description": "GPUs to train on; they are split into workers by what the machines hold.", **_COUNT, "default": 1},
    "min": {"description": "Train on as few GPUs as this. Default: one machine's.", **_COUNT},
    "max": {"description": "`ebb scale` may go up to this. Default: gpus.", **_COUNT},
    "gpu": {"description": "GPU type, as `ebb gpus` shows it, for example T4. Default: the platform's only one.", **_TEXT},
    "zone": {"description": "Only in this zone. Default: the platform picks one.", **_TEXT},
    "capacity": {
        "description": "How the machines are bought. Default: spot, where the GPU is on spot. spot-then-on-demand: on-demand "
        "machines while no spot ones are to be had.",
        "enum": list(CAPACITIES),
    },
    "image": {
        "description": "The workers' image: any one with Python 3.9 and torch 2.1, or newer. Ebb's launcher starts in place of "
        "its entrypoint. Default: the platform's trainer image.",
        **_TEXT,
    },
    "run-as": {
        "description": "The user of the workers: a number such as 1234 or 1234:100, root, or image for the one that the image "
        "names. Default: 1000, to whom the shared volumes belong.",
        **_TEXT,
    },
    "writable-root": {
        "description": "Let the workers write to their root file system. Default: false, they write to /tmp and to the volumes.",
        "type": "boolean",
    },
    "shm": {"description": "Size of /dev/shm, such as 512Mi or 1Gi. Default: a quarter of the memory.", **_TEXT},
    "data": {
        "description": "Folder on a shared volume, or a bucket that is copied to one; the program gets it as --data.",
        **_TEXT,
    },
    "code": {
        "description": "This folder, relative to the job file, travels with the job, less what .gitignore ignores; what a "
        "requirements.txt in it asks for is installed. Default: the folder that holds the program; false: none.",
        "anyOf": [_TEXT, {"enum": [False]}],
    },
    "priority": {"description": "job (the usual), or elastic: it makes room for all others.", "enum": list(PRIORITIES)},
    "queue": {
        "description": "A LocalQueue of Kueue, which then says when the job may have machines. Default: Ebb's own queue.",
        **_TEXT,
        "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
    },
    "progress-regex": {
        "description": "For a program that reports its progress only in its log: a regular expression of Python for the lines of "
        "rank 0, such as step (?P<step>\\d+).*loss (?P<loss>[\\d.]+): step is the steps done, other groups are metrics.",
        **_TEXT,
        "pattern": r"\(\?P<step>",
    },
    "max-cost": {
        "description": "The job is stopped, with a checkpoint, before it costs more than this, in USD.",
        "type": "number",
        "exclusiveMinimum": 0,
    },
    "deadline": {
        "description": "The job is stopped then, with a checkpoint: 12h from when it is submitted, or 2026-12-01T18:00Z.",
        **_TEXT,
    },
    "hold-on-failure": {
        "description": "Where the program fails, the job stops, and the machine of the worker that failed is held for so long, "
        "to look into it with `ebb exec`: 30m, at most 4h. It costs money meanwhile.",
        "type": ["string", "integer"],
    },
    "burn-in": {
        "description": "Each machine's GPUs, and the links between them, are tested for so long before it begins work, and a "
        "broken machine is replaced by another: 60s; 10s to 1h. It costs money meanwhile.",
        "type": ["string", "integer"],
    },
    "env": {
        "description": "Variables for the program. No place for secrets: who may see the job sees them.",
        "type": "object",
        "propertyNames": {"pattern": "^(?!EBB_)[A-Za-z_][A-Za-z0-9_]*$"},
        "additionalProperties": {"type": ["string", "number"]},
    },
    "env-file": {"description": "A file, relative to the job file, with lines NAME=VALUE; env wins over it.", **_TEXT},
    "secret": {
        "description": "Secrets, as `ebb secret set` has them, by name: hf-token (its value is the variable HF_TOKEN), "
        "hf-token=OTHER, or hf-token=/secrets/hf (a file). Values have no place here.",
        "anyOf": [_SECRET, {"type": "array", "items": _SECRET}],
    },
    "registry-secret": {
        "description": "The secret with the login to the image's registry, as `ebb secret set NAME --registry HOST` made it.",
        "type": "string",
        "pattern": f"^{_SECRET_NAME}$",
    },
    "command": {
        "description": "The program, as on a command line or as a list of words, such as `python train.py --lr 0.1`.",
        "anyOf": [_TEXT, {"type": "array", "items": _SCALAR, "minItems": 1}],
    },
}


def schema() -> dict[str, Any]:
    """The JSON Schema of the short job file; a file with kind: ElasticJob has that of the API (docs/job-file.md)."""
    assert set(PROPERTIES) == set(KEYS), set(PROPERTIES) ^ set(KEYS)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",  # the newest that all editors' YAML servers know
        "title": "Ebb's short job file",
        "description": "What `ebb submit -f`, `ebb sweep -f` and `ebb local -f` take. Flags win over it.",
        "type": "object",
        "additionalProperties": False,
        "properties": PROPERTIES,
    }


def text() -> str:
    """The file."""
    return json.dumps(schema(), indent=2) + "\n"
