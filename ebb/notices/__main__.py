"""`python -m ebb.notices`: see the package's docstring.

    NODE_NAME    the Node of this machine (of the pod: fieldRef spec.nodeName)
    --cloud      whose metadata service to ask; auto: by the machine's firmware
    --account    the folder of the service account, where it is not the pod's usual one

It needs the machine's own network: the answers of a metadata service do not reach pods. It ends only when it is told to.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

from ebb.metadata.firmware import CHOICES, make_source
from ebb.notices.agent import Agent, Marker
from ebb.notices.node import SERVICE_ACCOUNT, NodeError, OwnNode


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    """Return the exit code: 2 if the pod is not set up as it must be."""
    parser = argparse.ArgumentParser(prog="python -m ebb.notices", description="Marks the Node of a machine that is reclaimed.")
    parser.add_argument("--cloud", choices=CHOICES, default="auto", help="whose metadata service to ask; auto: by the firmware")
    parser.add_argument("--account", type=Path, default=SERVICE_ACCOUNT, help="the folder of the service account")
    asked = parser.parse_args()
    name = os.environ.get("NODE_NAME", "")
    if not name:
        print("NODE_NAME is not set: give the container the field spec.nodeName in it", file=sys.stderr)
        return 2
    try:
        node = OwnNode.in_cluster(name, os.environ, asked.account)
    except NodeError as error:
        print(error, file=sys.stderr)
        return 2
    source = make_source(asked.cloud, os.environ)
    if source is None:
        say(f"{name}: no cloud that announces reclaims has this machine; there is nothing to watch")
        while True:
            signal.pause()
    say(f"{name}: listening for notices of {source.name}")
    marker = Marker(node.write, say)
    marker.start()
    Agent(source, marker.want, say).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
