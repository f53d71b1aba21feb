"""`make preview`: the engine's preview of a whole stack, as a person reads it."""

import json
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testing.pulumi.mocks.engine import Stack
from testing.pulumi.mocks.run import PROVIDERS, Run, name_of, type_of

HEARTBEAT_SECONDS = 2.0
WIDTH, NAMES_WIDTH, PAGE_WIDTH = 52, 64, 130
OWN_WARNINGS = ("using pulumi-resource-", "using pulumi-language-")  # of the engine, about plugins on PATH: that is our doing
MANY = 4  # so many alike in one part are one line
ROOT = "pulumi:pulumi:Stack"


def show(name: str, file: Path) -> None:
    """Print the preview. Raises EngineError with what the program or a provider refused."""
    started = time.monotonic()
    with Stack(name, file) as stack:
        run = stack.preview(watch=_Progress(started).see)
    states = resources(run)
    print("\n".join(tree(states)))
    print()
    print("\n".join(counts(states)))
    for warning in warnings(run):
        print(f"\nwarning: {warning}")
    print(json.dumps(figures(name, states, seconds=time.monotonic() - started)), flush=True)


def resources(run: Run) -> dict[str, Mapping[str, Any]]:
    """The resources of the stack: URN -> resource, without the stack itself."""
    return {urn: state for urn, state in run.states.items() if type_of(urn) != ROOT and state}


def figures(name: str, states: Mapping[str, Mapping[str, Any]], *, seconds: float) -> dict[str, object]:
    """For machines: the last line."""
    kinds = Counter(_sort(urn, state) for urn, state in states.items())
    components, providers = kinds.pop("component", 0), kinds.pop("provider", 0)
    return {
        "preview": "ok", "stack": name, "resources": kinds.total(), **dict(sorted(kinds.items())), "components": components,
        "providers": providers, "seconds": round(seconds, 1),
    }  # fmt: skip


def _sort(urn: str, state: Mapping[str, Any]) -> str:
    kind = type_of(urn)
    if kind.startswith(PROVIDERS):
        return "provider"
    if not state.get("custom"):
        return "component"
    return kind.partition(":")[0]


def tree(states: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The resources by parent; leaves of the same type that stand together are one line when they are many."""
    below: dict[str, list[str]] = {}
    for urn, state in states.items():
        parent = state.get("parent") or ""
        below.setdefault(parent if parent in states else "", []).append(urn)
    return list(_branch("", below, ""))


def _branch(parent: str, below: Mapping[str, Sequence[str]], indent: str) -> Iterator[str]:
    place = {urn: number for number, urn in enumerate(below.get(parent, []))}

    def order(urn: str) -> tuple[object, ...]:
        """Parts of the stack come first, in the program's order; inside a part, what stands alone comes before what does not."""
        return ((urn in below) != (parent == ""), place[urn] if urn in below else 0, type_of(urn), name_of(urn))

    children = sorted(place, key=order)
    alike = Counter(type_of(urn) for urn in children if urn not in below)
    told = set()
    for urn in children:
        kind = type_of(urn)
        if urn in below or alike[kind] < MANY:
            yield f"{indent}+ {short(kind):{WIDTH - len(indent)}} {name_of(urn)}"
            yield from _branch(urn, below, indent + "    ")
        elif kind not in told:
            told.add(kind)
            whose = f"{name_of(parent)}/" if parent else ""
            names = [name_of(one).removeprefix(whose) for one in children if type_of(one) == kind and one not in below]
            yield f"{indent}+ {short(kind):{WIDTH - len(indent)}} {_together(names)}"


def _together(names: Sequence[str]) -> str:
    shown = names[: 1 + max((number for number in range(MANY) if len(", ".join(names[: number + 1])) <= NAMES_WIDTH), default=0)]
    return f"{len(names)}: {', '.join(shown)}{', ...' if len(names) > len(shown) else ''}"


def short(kind: str) -> str:
    """aws:ec2/vpc:Vpc -> aws ec2 Vpc; kubernetes:apps/v1:Deployment -> kubernetes apps/v1 Deployment."""
    package, _, rest = kind.partition(":")
    where, _, name = rest.rpartition(":")
    module = where if package == "kubernetes" else where.partition("/")[0]  # there it is the API's group and version
    return f"provider {name}" if kind.startswith(PROVIDERS) else " ".join(part for part in (package, module, name) if part)


def part_of(urn: str, states: Mapping[str, Mapping[str, Any]]) -> str:
    """Which concern a resource belongs to: its outermost component, else what kind of thing it is."""
    found, place = "", urn
    while place in states:
        found = found if states[place].get("custom") else name_of(place)
        place = str(states[place].get("parent") or "")
    if found:
        return found
    kind = type_of(urn)
    return "providers" if kind.startswith(PROVIDERS) else "in the cluster" if kind.startswith("kubernetes:") else "the rest"


def counts(states: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Number of resources by type, by concern."""
    table: dict[str, Counter[str]] = {}
    for urn, state in states.items():
        if state.get("custom") and not type_of(urn).startswith(PROVIDERS):
            table.setdefault(part_of(urn, states), Counter())[short(type_of(urn)).rpartition(" ")[2]] += 1
    lines = []
    for part, kinds in sorted(table.items(), key=lambda entry: -entry[1].total()):
        which = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        lines += textwrap.wrap(f"{kinds.total():4}  {part:20} {which}", PAGE_WIDTH, subsequent_indent=" " * 27)
    return [*lines, f"{sum(kinds.total() for kinds in table.values()):4}  in all"]


def warnings(run: Run) -> list[str]:
    """Those of the program, without the engine's about our plugins."""
    said = [str(one["message"]).strip().removeprefix("warning: ") for one in run.diagnostics if one["severity"] == "warning"]
    return [text for text in dict.fromkeys(said) if not text.startswith(OWN_WARNINGS)]


class _Progress:
    """One line on stderr every few seconds, so that nobody waits in the dark."""

    def __init__(self, started: float) -> None:
        self._started, self._said, self._count = started, started, 0

    def see(self, event: Mapping[str, Any]) -> None:
        self._count += "resourcePreEvent" in event
        now = time.monotonic()
        if now - self._said >= HEARTBEAT_SECONDS:
            self._said = now
            what = f"{self._count} resources so far" if self._count else "starting the engine and the program"
            print(f"[{now - self._started:5.1f} s] {what}", file=sys.stderr, flush=True)
