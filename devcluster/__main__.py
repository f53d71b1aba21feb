"""`python -m devcluster VERB [--box NAME]`: the development cluster from the command line.

up and down are for people and for `make`; `run` is the daemon that `up` starts. Errors that a user can cause are one message
on stderr and exit code 1; wrong arguments are 2; Ctrl-C is 130.
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from devcluster.control_plane import daemons
from devcluster.machines import lifecycle, processes
from devcluster.settings import DEFAULT_BOX, EBB_HOME, ZONES, Box, BoxError

EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 130


def main() -> int:
    arguments = parser().parse_args()
    # Whatever umask the shell has: pods run as another user and read what we make.
    os.umask(0o022)
    try:
        return int(arguments.verb(arguments) or EXIT_DONE)
    except BoxError as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED
    except BaseExceptionGroup as group:
        known, other = group.split(BoxError)
        if other is not None or known is None:
            raise
        print("\n".join(str(error) for error in _leaves(known)), file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("interrupted; `up` goes on from here, `down` removes what there is", file=sys.stderr)
        return EXIT_INTERRUPTED


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m devcluster", description="A real Kubernetes with zones, spot machines and reclaims on this computer."
    )
    verbs = top.add_subparsers(required=True, metavar="VERB")

    def verb(name: str, what: str, function: object) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=what, description=what)
        made.add_argument("--box", default=DEFAULT_BOX, metavar="NAME", help=f"which devcluster (default: {DEFAULT_BOX})")
        made.set_defaults(verb=function)
        return made

    up = verb("up", "bring the devcluster up; heals one that is half up", _up)
    up.add_argument(
        "--legacy-etcd", action="store_true", help="from now on with an image of etcd 3.5, for stacks with ebb:legacyRendezvous"
    )
    up.add_argument("--with-pulumi", action="store_true", help="download or build Pulumi meanwhile, for a stack that comes next")
    status = verb("status", "what runs", _status)
    status.add_argument("-o", "--output", choices=["text", "json"], default="text")
    verb("images", "build the images only, and print their names as JSON", _images)
    load = verb("load", "bring an image of your own to the machines, for `ebb submit --image`", _load)
    load.add_argument("archive", type=Path, metavar="ARCHIVE", help="as `docker save` writes it")
    verb("down", "remove the devcluster and all that is on it", _down)
    reclaim = verb("reclaim", "take a machine away, as a spot market does", _reclaim)
    reclaim.add_argument("node", metavar="NODE")
    notice = reclaim.add_mutually_exclusive_group()
    notice.add_argument(
        "--notice", type=float, metavar="SECONDS", help="warn this long before (default: what the node group says)"
    )
    notice.add_argument("--no-notice", action="store_true", help="everything on it is killed at once")
    reclaim.add_argument("--wait", action="store_true", help="return when the machine is gone")
    for name, what, function in (
        ("exhaust", "the zone has no more machines to give", _exhaust),
        ("restore", "the zone has machines again", _restore),
    ):
        verb(name, what, function).add_argument("zone", choices=ZONES, metavar="ZONE", help=", ".join(ZONES))
    for old, function in (("dry", _exhaust), ("wet", _restore)):  # their former names, still understood
        made = verbs.add_parser(old)
        made.add_argument("--box", default=DEFAULT_BOX)
        made.add_argument("zone", choices=ZONES)
        made.set_defaults(verb=function)
    verb("run", "the cloud of the devcluster itself; `up` starts it", _run)
    verb("environment", "install torch and the rest of trainer/requirements.txt once, for pods, tests and types", _environment)
    stack = verbs.add_parser(
        "stack",
        help="the local stack on the devcluster, by Pulumi",
        description="the local stack on the devcluster, by Pulumi; like typing `pulumi` after `source ./env`",
    )
    stack.add_argument("what", choices=["up", "down", "forget"], metavar="up|down|forget")
    stack.set_defaults(verb=_stack)
    return top


def _up(arguments: argparse.Namespace) -> None:
    from devcluster.up import up  # noqa: PLC0415 - half a second of imports that the quick verbs do not need

    asyncio.run(up(arguments.box, legacy_etcd=arguments.legacy_etcd, with_pulumi=arguments.with_pulumi))


def _down(arguments: argparse.Namespace) -> None:
    from devcluster.down import down  # noqa: PLC0415

    asyncio.run(down(arguments.box))


def _images(arguments: argparse.Namespace) -> None:
    from devcluster.up import build_images  # noqa: PLC0415

    print(json.dumps(asyncio.run(build_images()), indent=2))


def _load(arguments: argparse.Namespace) -> None:
    from devcluster.up import load_image  # noqa: PLC0415

    print(asyncio.run(load_image(arguments.box, arguments.archive)))


def _status(arguments: argparse.Namespace) -> int:
    """Exit code 0 when all of the control plane and the cloud run."""
    box = Box.load(arguments.box)
    parts = asyncio.run(daemons.health(box)) | {"cloud": processes.is_alive(box, "cloud")}
    there = lifecycle.list_machines(box)
    if arguments.output == "json":
        listed = [{"name": one.name, "zone": one.spec.zone, "type": one.spec.instance_type, "alive": one.alive} for one in there]
        print(json.dumps({"box": box.name, "kubeconfig": str(box.kubeconfig), "parts": parts, "machines": listed}))
    else:
        print(f"devcluster {box.name}  {box.network}  KUBECONFIG={box.kubeconfig}")
        print("\n".join(f"  {name:26}{'healthy' if well else 'down: python -m devcluster up'}" for name, well in parts.items()))
        print(
            "\n".join(
                f"  {one.name:26}{one.spec.zone:10}{one.spec.instance_type:16}{'runs' if one.alive else 'dead'}" for one in there
            )
            or "  no machines"
        )
    return EXIT_DONE if all(parts.values()) else EXIT_FAILED


def _reclaim(arguments: argparse.Namespace) -> int:
    from devcluster.cloud import verbs  # noqa: PLC0415

    notice = 0.0 if arguments.no_notice else arguments.notice
    return asyncio.run(
        verbs.reclaim(Box.load(arguments.box), arguments.node, notice_seconds=notice, wait=arguments.wait, say=print)
    )


def _exhaust(arguments: argparse.Namespace) -> None:
    from devcluster.cloud import verbs  # noqa: PLC0415

    print(verbs.exhaust(Box.load(arguments.box), arguments.zone))


def _restore(arguments: argparse.Namespace) -> None:
    from devcluster.cloud import verbs  # noqa: PLC0415

    print(verbs.restore(Box.load(arguments.box), arguments.zone))


def _run(arguments: argparse.Namespace) -> int:
    from devcluster.cloud.daemon import run  # noqa: PLC0415

    return run(Box.load(arguments.box))


def _environment(_: argparse.Namespace) -> None:
    from devcluster.images import environment  # noqa: PLC0415

    asyncio.run(environment.ensure(EBB_HOME))


def _stack(arguments: argparse.Namespace) -> None:
    from devcluster.pulumi import stacks  # noqa: PLC0415

    {"up": stacks.up, "down": stacks.down, "forget": stacks.forget}[arguments.what]()


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    return [leaf for error in group.exceptions for leaf in (_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])]


if __name__ == "__main__":
    sys.exit(main())
