"""`make graph`: the resources of a stack as data, and as a picture that any browser opens.

The records are the engine's own, from its preview: what the program registered, after transforms, remote components included.
What a preview does not know yet is written as where it comes from: "<from aws:ec2/vpc:Vpc::dev>". The engine masks secrets.
"""

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from devcluster.settings import CHECKOUT
from testing.pulumi.mocks import page
from testing.pulumi.mocks.engine import Stack
from testing.pulumi.mocks.package import UNKNOWN
from testing.pulumi.mocks.preview import part_of, resources
from testing.pulumi.mocks.run import name_of, type_of

BUILD = CHECKOUT / "build"

States = Mapping[str, Mapping[str, Any]]
Record = dict[str, Any]


def write(name: str, file: Path) -> None:
    """Write build/graph-NAME.json and .html. Raises EngineError."""
    started = time.monotonic()
    with Stack(name, file) as stack:
        states = resources(stack.preview())
    found = records(states)
    data, picture = BUILD / f"graph-{name}.json", BUILD / f"graph-{name}.html"
    data.write_text(json.dumps(found, indent=1) + "\n")
    picture.write_text(page.html(name, nodes(states, found)))
    print(f"{data.relative_to(CHECKOUT)}: {len(found)} resources\n{picture.relative_to(CHECKOUT)}: open it in a browser")
    seconds = round(time.monotonic() - started, 1)
    print(json.dumps({"graph": "ok", "stack": name, "resources": len(found), "seconds": seconds}), flush=True)


def records(states: States) -> list[Record]:
    """One record per resource, sorted by type and name."""
    return sorted(
        (_record(urn, state) for urn, state in states.items()), key=lambda one: (one["type"], one["name"], one["parent"] or "")
    )


def _record(urn: str, state: Mapping[str, Any]) -> Record:
    sources = state.get("propertyDependencies") or {}
    inputs = {
        key: _sourced(value, sources.get(key) or [])
        for key, value in sorted((state.get("inputs") or {}).items())
        if not key.startswith("__")
    }
    return {
        "type": type_of(urn),
        "name": name_of(urn),
        "inputs": inputs,
        "parent": _called(state.get("parent")),
        "dependencies": sorted({label(one) for one in state.get("dependencies") or []}),
        "provider": _called((state.get("provider") or "").rpartition("::")[0]),
        "protect": bool(state.get("protect")),
        "retainOnDelete": bool(state.get("retainOnDelete")),
        "ignoreChanges": sorted(state.get("ignoreChanges") or []),
    }


def label(urn: str) -> str:
    """A resource as records name it: type::name."""
    return f"{type_of(urn)}::{name_of(urn)}"


def _called(urn: object) -> str | None:
    found = label(str(urn)) if urn else ""
    return found if found and not found.startswith("pulumi:pulumi:Stack") else None


def _sourced(value: Any, sources: Iterable[str]) -> Any:
    """With where it comes from in place of what is not known yet."""
    if isinstance(value, dict):
        return {key: _sourced(item, sources) for key, item in sorted(value.items())}
    if isinstance(value, list):
        return [_sourced(item, sources) for item in value]
    if isinstance(value, str) and UNKNOWN in value:
        origin = ", ".join(sorted({label(one) for one in sources})) or "what the update makes"
        return value.replace(UNKNOWN, f"<from {origin}>")
    return value


def nodes(states: States, found: Iterable[Record]) -> list[page.Node]:
    """For the picture: every resource but components and providers, with its part and the step in which it can be made."""
    by_label = {label(urn): urn for urn in states}
    steps = _steps(states)
    made = []
    for record in found:
        urn = by_label[f"{record['type']}::{record['name']}"]
        if states[urn].get("custom") and not record["type"].startswith("pulumi:providers:"):
            needs = sorted({label(one) for one in _needs(urn, states)})
            made.append(page.Node(record=record, part=part_of(urn, states), step=steps[urn], needs=needs))
    return made


def _needs(urn: str, states: States) -> set[str]:
    """The plain resources that must be there before this one: its dependencies, those of its provider, its parent."""
    state = states[urn]
    provider = str(state.get("provider") or "").rpartition("::")[0]
    first = {*(state.get("dependencies") or []), *([provider] if provider in states else [])}
    parent = str(state.get("parent") or "")
    if parent in states and states[parent].get("custom"):
        first.add(parent)
    found: set[str] = set()
    for one in first - {urn}:
        if one not in states:
            continue
        plain = states[one].get("custom") and not type_of(one).startswith("pulumi:providers:")
        found |= {one} if plain else _within(one, states) if not states[one].get("custom") else _needs(one, states)
    return found - {urn}


def _within(component: str, states: States) -> set[str]:
    children = {urn for urn, state in states.items() if state.get("parent") == component}
    plain = {urn for urn in children if states[urn].get("custom") and not type_of(urn).startswith("pulumi:providers:")}
    return plain.union(*(_within(urn, states) for urn in children if not states[urn].get("custom")))


def _steps(states: States) -> dict[str, int]:
    """The step in which each resource can be made: one after the last that it needs."""
    found: dict[str, int] = {}

    def step(urn: str, path: frozenset[str]) -> int:
        if urn not in found:
            found[urn] = 1 + max((step(one, path | {urn}) for one in _needs(urn, states) if one not in path), default=0)
        return found[urn]

    for urn in states:
        step(urn, frozenset())
    return found
