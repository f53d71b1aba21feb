"""`make rehearse STACK=... MOCK=1`: the rehearsal of a stack (infra/rehearse) with mocks in place of its cloud.

Nothing of it differs but the `pulumi` that it finds on PATH, the steps for which there are no machines, and where leftovers are
looked for: in the record of what the mocks were asked to make and not to delete. What the state says is not believed.
"""

import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from testing.pulumi.mocks.engine import Stack
from testing.pulumi.mocks.run import name_of, type_of


def rehearse(name: str, file: Path, budget: str | None = None) -> int:
    """Return the rehearsal's exit code. `budget`: its cap in USD."""
    more = ["--budget", budget] if budget else []
    with Stack(name, file) as stack:
        looks = shlex.join(
            [sys.executable, "-m", "testing.pulumi.mocks", "leftovers", "--stack", name, "--folder", str(stack.folder)]
        )
        return stack.run([sys.executable, "-m", "infra.rehearse", "-s", name, "--mock", looks, *more])


def leftovers(name: str, folder: Path) -> int:
    """Print them as infra.account.leftovers does. Returns 1 if there are any."""
    record = folder / "calls.jsonl"
    calls = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    left, kept = parted(calls, retained(folder / "state"))
    for what, found in (("left over", left), ("kept on purpose", kept)):
        for one in found:
            print(f"{what}: {one['kind']} {one['name']}")
    print(json.dumps({"stack": name, "left": left, "kept": kept, "usdPerMonth": None, "notLookedAt": []}), flush=True)
    return int(bool(left))


def parted(calls: Iterable[Mapping[str, Any]], retained: frozenset[str]) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """What was made and not deleted: what nobody meant to keep, and the URNs of `retained`."""
    there: dict[tuple[str, str], None] = {}
    for call in calls:
        key = (str(call["urn"]), str(call["inputs"].get("id")))
        if call["method"] == "Created":
            there[key] = None
        elif call["method"] == "Delete":
            there.pop(key, None)
    found = [(urn, {"kind": type_of(urn), "name": name_of(urn)}) for urn, _ in there]
    return [one for urn, one in found if urn not in retained], [one for urn, one in found if urn in retained]


def retained(state: Path) -> frozenset[str]:
    """URNs that a destroy was told to leave, in any of the stack's updates."""
    found = set()
    for file in state.glob(".pulumi/history/**/*.checkpoint.json"):
        latest = json.loads(file.read_text())["checkpoint"].get("latest") or {}
        found |= {one["urn"] for one in latest.get("resources") or [] if one.get("retainOnDelete")}
    return frozenset(found)
