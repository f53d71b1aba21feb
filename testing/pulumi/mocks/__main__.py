"""`python -m testing.pulumi.mocks preview|graph|rehearse --stack NAME`: what `pulumi up` would do, without an account.

Errors that a user can cause are one message on stderr and exit code 1; wrong arguments are 2; Ctrl-C is 130.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from devcluster.settings import CHECKOUT, BoxError
from testing.pulumi.mocks import graph, preview
from testing.pulumi.mocks.engine import EngineError, Stack
from testing.pulumi.mocks.run import name_of, type_of

EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 130

ABOUT = """\
The real Pulumi engine on the program of this checkout, with providers that answer as the clouds and Kubernetes would and make
nothing: no account, no cluster, no network. Wrong values are refused by the SDKs' types, those of AWS by its own API models too;
what these allow and a real account refuses (a quota, a type that a zone has not, a name that is taken) shows only there:
`python -m infra.account.preflight`."""

PREVIEW = """\
Prints the tree of all resources that `pulumi up` of an empty stack would make, a count of them, and one line of JSON."""

GRAPH = """\
Writes build/graph-NAME.json, one record per resource (type, name, inputs, parent, dependencies, provider, protect,
retainOnDelete, ignoreChanges), sorted, the same for the same settings; and build/graph-NAME.html, the same as a picture:
a row per part of the stack, a column per step of its making, details at a click. Any browser opens it, without a network."""

REHEARSE = """\
Runs the rehearsal of infra.rehearse with mocks in place of the cloud: up, a second up, refresh, destroy, leftovers. The steps
that need machines (the job on a GPU, the reclaim) are skipped, and the last line, one JSON object, says so."""

LEFTOVERS = """\
Prints what the mocks of a stack that is open were asked to make and not to delete. The rehearsal asks it."""


def main() -> int:
    arguments = parser().parse_args()
    try:
        code: int | None = arguments.verb(arguments)
    except EngineError as error:
        print(f"\n{error}", file=sys.stderr)
        return EXIT_FAILED
    except BoxError as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("interrupted; nothing was made, and nothing is left", file=sys.stderr)
        return EXIT_INTERRUPTED
    return code or EXIT_DONE


def parser() -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(prog="python -m testing.pulumi.mocks", description=ABOUT, formatter_class=layout)
    verbs = top.add_subparsers(required=True, metavar="VERB")
    verbs_of_stacks: tuple[tuple[str, str, Callable[[argparse.Namespace], int | None]], ...] = (
        ("preview", PREVIEW, lambda given: preview.show(given.stack, stack_file(given.stack))),
        ("graph", GRAPH, lambda given: graph.write(given.stack, stack_file(given.stack))),
        ("rehearse", REHEARSE, lambda given: rehearse(given.stack, stack_file(given.stack), given.budget)),
        ("leftovers", LEFTOVERS, lambda given: leftovers(given.stack, given.folder)),
    )
    for name, what, function in verbs_of_stacks:
        verb = verbs.add_parser(name, help=what.partition(".")[0], description=f"{what}\n\n{ABOUT}", formatter_class=layout)
        verb.add_argument("--stack", "-s", required=True, metavar="NAME", help="the stack: its settings are Pulumi.NAME.yaml")
        verb.set_defaults(verb=function)
        if name == "rehearse":
            verb.add_argument(
                "--budget", metavar="USD", help="as that of infra.rehearse, by the same prices; the mocks cost nothing"
            )
        if name == "leftovers":
            verb.add_argument("--folder", required=True, type=Path, metavar="DIR", help="the stack's folder in build/mocks")
    return top


def stack_file(name: str, checkout: Path = CHECKOUT) -> Path:
    """Raises BoxError, naming the stacks that there are."""
    file = checkout / f"Pulumi.{name}.yaml"
    if not file.is_file():
        known = sorted(one.name.removeprefix("Pulumi.").removesuffix(".yaml") for one in checkout.glob("Pulumi.*.yaml"))
        raise BoxError(f"there is no stack {name!r}: {file} does not exist. There are {', '.join(known) or 'none'}.")
    return file


def rehearse(name: str, file: Path, budget: str | None = None) -> int:
    """Run infra.rehearse with the mocks' `pulumi` on PATH, and return its exit code. `budget`: its cap in USD."""
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
    """Return what was made and not deleted: what nobody meant to keep, and the URNs of `retained`."""
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


if __name__ == "__main__":
    sys.exit(main())
