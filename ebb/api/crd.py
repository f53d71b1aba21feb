"""The CustomResourceDefinition, workloads/manifests/crd.yaml, made of spec.py and status.py (`make manifests`).

`make check` refuses a difference: a cluster must not get another API than the one that the controller understands.
"""

from pathlib import Path
from typing import Any

import yaml

from ebb.api.contract import GROUP, KIND, PLURAL, VERSION
from ebb.api.schema import Schema, schema_of
from ebb.api.spec import FIXED_RULES, JobSpec
from ebb.api.status import Status

PATH = Path(__file__).parents[2] / "workloads" / "manifests" / "crd.yaml"
HEADER = "# Generated from ebb/api/{spec,parts,status}.py by `make manifests`: change those, not this.\n"

COLUMNS = (
    ("State", "string", ".status.state", "Waiting, Running, Restarting, Suspended, Succeeded or Failed.", 0),
    ("Workers", "string", ".status.ready", "Workers that run, out of those wanted.", 0),
    ("Zone", "string", ".status.placement.zone", "Where the workers run.", 0),
    ("GPU", "string", ".status.placement.gpuType", "The GPU of the chosen machines.", 0),
    ("Step", "integer", ".status.progress.step", "Optimizer steps done.", 0),
    ("Reclaims", "integer", ".status.reclaims", "Workers lost to reclaims so far.", 0),
    ("Age", "date", ".metadata.creationTimestamp", "Since when the job exists.", 0),
    ("Failures", "integer", ".status.failures", "Failures of the program so far.", 1),
    ("Capacity", "string", ".status.placement.capacityType", "spot or on-demand.", 1),
)

# A worker's name is its pod's and its service's: a DNS label of at most 63 characters.
_LAST_INDEX = "string((has(self.spec.maxReplicas) ? self.spec.maxReplicas : self.spec.replicaSpecs.Worker.replicas) - 1)"
NAME_RULES: tuple[Schema, ...] = (
    {
        "rule": f"size(self.metadata.name) + size('-worker-') + size({_LAST_INDEX}) <= 63",
        "message": "metadata.name is too long: <name>-worker-<index> must have at most 63 characters; choose a shorter name.",
    },
    {
        # The API server allows a-z, 0-9, '-' and '.' anyway. A regular expression would exceed its cost limit for a schema.
        "rule": "!self.metadata.name.contains('.') && self.metadata.name.substring(0, 1) >= 'a'",
        "message": "metadata.name must begin with a letter and have only a-z, 0-9 and '-': the workers' Service is named by it.",
    },
)


def crd() -> dict[str, Any]:
    """The CustomResourceDefinition as a dict."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": KIND, "listKind": f"{KIND}List", "plural": PLURAL, "singular": KIND.lower(), "shortNames": ["ej"]},
            "versions": [_version()],
        },
    }


def _version() -> dict[str, Any]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _object()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicaSpecs.Worker.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            # A priority of 0 is the default: written out, `kubectl apply` finds a change every time.
            {"name": name, "type": kind, "jsonPath": path, "description": meaning, **({"priority": wide} if wide else {})}
            for name, kind, path, meaning, wide in COLUMNS
        ],
    }


def _object() -> Schema:
    return {
        "type": "object",
        "description": "A PyTorch training whose number of workers may change while it runs.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}."},
            "kind": {"type": "string", "description": f"{KIND}."},
            "metadata": {"type": "object"},
            "spec": schema_of(JobSpec, "What is wanted.", JobSpec.RULES),
            "status": schema_of(Status, "What is, written by the controller alone."),
        },
        "x-kubernetes-validations": [*NAME_RULES, *FIXED_RULES],
    }


def text() -> str:
    """The file's content."""
    return HEADER + yaml.safe_dump(crd(), sort_keys=False, width=130, allow_unicode=True)
