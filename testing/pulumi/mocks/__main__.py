"""`python -m testing.pulumi.mocks preview|graph --stack NAME`: what `pulumi up` would do, without an account.

Errors that a user can cause are one message on stderr and exit code 1; wrong arguments are 2; Ctrl-C is 130.
"""

import argparse
import sys
from pathlib import Path

from devcluster.settings import CHECKOUT, BoxError
from testing.pulumi.mocks import graph, preview
from testing.pulumi.mocks.engine import EngineError

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


def main() -> int:
    arguments = parser().parse_args()
    try:
        arguments.verb(arguments.stack, stack_file(arguments.stack))
    except EngineError as error:
        print(f"\n{error}", file=sys.stderr)
        return EXIT_FAILED
    except BoxError as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("interrupted; nothing was made, and nothing is left", file=sys.stderr)
        return EXIT_INTERRUPTED
    return EXIT_DONE


def parser() -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(prog="python -m testing.pulumi.mocks", description=ABOUT, formatter_class=layout)
    verbs = top.add_subparsers(required=True, metavar="VERB")
    for name, what, function in (("preview", PREVIEW, preview.show), ("graph", GRAPH, graph.write)):
        verb = verbs.add_parser(name, help=what.partition(".")[0], description=f"{what}\n\n{ABOUT}", formatter_class=layout)
        verb.add_argument("--stack", "-s", required=True, metavar="NAME", help="the stack: its settings are Pulumi.NAME.yaml")
        verb.set_defaults(verb=function)
    return top


def stack_file(name: str, checkout: Path = CHECKOUT) -> Path:
    """Raises BoxError, naming the stacks that there are."""
    file = checkout / f"Pulumi.{name}.yaml"
    if not file.is_file():
        known = sorted(one.name.removeprefix("Pulumi.").removesuffix(".yaml") for one in checkout.glob("Pulumi.*.yaml"))
        raise BoxError(f"there is no stack {name!r}: {file} does not exist. There are {', '.join(known) or 'none'}.")
    return file


if __name__ == "__main__":
    sys.exit(main())
