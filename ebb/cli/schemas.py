"""docs/cli/schemas/*.json, made of the dataclasses that `-o json` prints (`make manifests`).

One file for each verb. What is there stays: fields are only added, so a program must ignore those that it does not know; a field
that is listed as required is always there, and null where it says nothing. A test holds what the verbs print to it.
"""

import json
import types
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ebb.api.platform import NodeGroup
from ebb.cli.verbs.platform import PlatformView
from ebb.cli.verbs.ssh import SshHost
from ebb.client.costs import CostReport, Estimate
from ebb.client.diagnostics.network import NetworkReport
from ebb.client.diagnostics.storage import StorageReport
from ebb.client.diagnostics.symptoms import Finding
from ebb.client.files.data import Listing, Transfer
from ebb.client.files.profiles import Trace
from ebb.client.files.workers import Executed
from ebb.client.gpus import GpuGroup, GpuReport
from ebb.client.jobs.top import Top
from ebb.client.jobs.view import JobView
from ebb.client.jobs.watch import JobStatus
from ebb.client.local_run.plan import LocalRun
from ebb.client.local_run.process import LocalResult
from ebb.client.queue import QueueReport
from ebb.client.report import RunReport, SweepReport
from ebb.client.scaling import ScalingReport
from ebb.client.secrets.store import SecretView
from ebb.client.submission.fit import Price
from ebb.client.submission.outlook import Outlook
from ebb.client.sweep import Started, SweepView
from ebb.client.timeline.timeline import Entry

FOLDER = Path(__file__).parents[2] / "docs" / "cli" / "schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]


@dataclass(frozen=True)
class Also:
    """An object with the fields of several dataclasses and some more."""

    parts: tuple[type, ...]
    more: Mapping[str, Any]
    without: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Either:
    """One of several documents, by what was asked for."""

    shapes: tuple[Any, ...]


JOBS = {"jobs": tuple[JobView, ...]}
_LISTING = get_type_hints(Listing)
LISTED = Either(({"volumes": _LISTING["volumes"]}, {"path": str, "entries": _LISTING["entries"]}))
PLATFORM = {"platform": PlatformView}
ANSWER = {"platform": str, "current": bool, "cloud": str, "region": str, "trouble": str}
GPU_REPORT = Also((GpuReport,), {"groups": [Also((NodeGroup, GpuGroup), {}, frozenset({"group"}))]})


def everywhere(shape: Any) -> Schema:
    """Return the schema under `--platform all`: a document for each platform, or only its name where it does not answer."""
    return {"platforms": [Either((Also((), {**ANSWER, **_keys(shape)}), ANSWER))]}


def _keys(shape: Any) -> dict[str, Any]:
    if isinstance(shape, Also):
        return {**{name: kind for part in shape.parts for name, kind in get_type_hints(part).items()}, **shape.more}
    return dict(shape)


DOCUMENTS: Mapping[str, tuple[str, Any]] = {
    # file: what prints it; its shape: a type, {key: shape}, [shape of each item], Also or Either
    "list": ("ebb list", Either((JOBS, everywhere(JOBS)))),
    "list-queue": ("ebb list --queue", Either((QueueReport, everywhere(Also((QueueReport,), {}))))),
    "status": ("ebb status JOB", JobStatus),
    "status-watch": ("each line of ebb status JOB --watch", {"job": JobView}),
    "events": ("ebb events JOB", {"events": tuple[Entry, ...]}),
    "events-follow": ("each line of ebb events JOB -f", Entry),
    "logs": ("each line of ebb logs JOB", {"worker": int, "rank": int | None, "stream": str, "time": str, "text": str}),
    "top": ("ebb top", Top),
    "tensorboard": ("ebb tensorboard JOB...", {"logdir": str, "files": dict[str, int]}),
    "profile": ("ebb profile JOB", Trace),
    "ui": ("ebb ui", {"url": str}),
    "wait": ("ebb wait JOB...", {"job": JobView, **JOBS}),
    "check": ("ebb check", {"findings": tuple[Finding, ...]}),
    "check-network": ("ebb check network", {"network": NetworkReport}),
    "bench-scaling": ("ebb bench scaling", {"scaling": ScalingReport}),
    "check-storage": ("ebb check storage", {"storage": StorageReport}),
    "init": ("ebb init", {"file": str, "next": str}),
    "submit": ("ebb submit", {"job": JobView, "price": Price | None, "outlook": Outlook | None, "code": str}),
    "scale": ("ebb scale JOB GPUS", {"job": JobView}),
    "stop": ("ebb stop JOB...", JOBS),
    "resume": ("ebb resume JOB", {"job": JobView}),
    "delete": ("ebb delete JOB...", {"deleted": tuple[str, ...]}),
    "gpus": ("ebb gpus", Either((GPU_REPORT, everywhere(GPU_REPORT)))),
    "cost": ("ebb cost", CostReport),
    "cost-estimate": ("ebb cost --gpus N", Estimate),
    "exec": ("ebb exec JOB -- COMMAND", Executed),
    "ssh": ("ebb ssh JOB --install, --config, --remove", SshHost),
    "port": ("ebb port JOB PORT", {"host": str, "port": int}),
    "data-ls": ("ebb data ls [PLACE], ebb outputs JOB", LISTED),
    "data-rm": ("ebb data rm PLACE", {"removed": str}),
    "data-transfer": ("ebb data put, ebb data get, ebb outputs get JOB", Transfer),
    "platform": ("ebb platform add, use, remove", PLATFORM),
    "platform-list": ("ebb platform list", {"platforms": tuple[PlatformView, ...]}),
    "secret": ("ebb secret set, ebb secret rm", {"secret": SecretView}),
    "secret-list": ("ebb secret list", {"secrets": tuple[SecretView, ...]}),
    "sweep": ("ebb sweep", Also((Started,), {"sweep": SweepView})),
    "sweep-show": ("ebb sweep show SWEEP, and each line of it or of ebb sweep with --watch", {"sweep": SweepView}),
    "sweep-stop": ("ebb sweep stop SWEEP", {"stopped": tuple[str, ...]}),
    "sweep-delete": ("ebb sweep delete SWEEP", {"deleted": tuple[str, ...]}),
    "local": ("ebb local", {"run": Also((LocalResult,), {"resume": str})}),
    "local-dry-run": ("ebb local --dry-run", {"run": LocalRun}),
    "report": ("ebb report JOB|SWEEP -o json", Either((RunReport, SweepReport))),
}  # fmt: skip


def document(name: str) -> Schema:
    """The schema of one of DOCUMENTS."""
    title, shape = DOCUMENTS[name]
    made = _Made()
    root = made.of(shape)
    return {"$schema": DRAFT, "title": title, **root, "$defs": dict(sorted(made.found.items()))}


class _Made:
    """Schemas of the dataclasses that a document needs, by name."""

    def __init__(self) -> None:
        self.found: dict[str, Schema] = {}
        self._types: dict[str, Any] = {}

    def of(self, shape: Any) -> Schema:
        if isinstance(shape, Either):
            return {"anyOf": [self.of(one) for one in shape.shapes]}
        if isinstance(shape, Also):
            parts = {name: kind for part in shape.parts for name, kind in get_type_hints(part).items()}
            return self._object({name: kind for name, kind in {**parts, **shape.more}.items() if name not in shape.without})
        if isinstance(shape, list):
            return {"type": "array", "items": self.of(shape[0])}
        if isinstance(shape, dict):
            return self._object(shape)
        return self._type(shape)

    def _object(self, keys: Mapping[str, Any]) -> Schema:
        properties = {name: self.of(kind) for name, kind in keys.items()}
        return {"type": "object", "required": list(properties), "properties": properties}

    def _type(self, kind: Any) -> Schema:
        origin, inner = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            return {"anyOf": [self._type(one) for one in inner]}
        if origin is Literal:
            return {"enum": list(inner)}
        if origin is not None:
            return self._container(origin, inner)
        return self._named(kind) if is_dataclass(kind) else _plain(kind)

    def _container(self, origin: type, inner: tuple[Any, ...]) -> Schema:
        if issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self._type(inner[1])}
        if origin is tuple and inner[-1] is not Ellipsis:
            items = [self._type(one) for one in inner]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        return {"type": "array", "items": self._type(inner[0])}

    def _named(self, kind: Any) -> Schema:
        name = kind.__name__
        assert self._types.setdefault(name, kind) is kind, f"two dataclasses of one document are called {name}"
        if name not in self.found:
            self.found[name] = {}  # before its fields, which may hold it
            self.found[name] = {"description": " ".join((kind.__doc__ or "").split()), **self._object(get_type_hints(kind))}
        return {"$ref": f"#/$defs/{name}"}


def _plain(kind: Any) -> Schema:
    """Raises TypeError for what JSON does not have."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return {"enum": [one.value for one in kind]}
    if kind is Any or kind is object:
        return {}
    known = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    if kind not in known:
        raise TypeError(f"{kind!r} has no JSON form here: let the verb print something simpler")
    return {"type": known[kind]}


def text(name: str) -> str:
    """The file's text."""
    return json.dumps(document(name), indent=1) + "\n"
