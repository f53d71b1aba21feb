"""The verbs by which a user plays the spot market: reclaim, exhaust, restore; the daemon does what they ask for.

    exit_code = asyncio.run(reclaim(box, node, notice_seconds=30, wait=True, say=print))
    print(exhaust(box, "local-a"))

Exhausted zones are listed in the devcluster's file `dry`, as JSON; its `cloud.json` may say {"scaleDownDelaySeconds": 20}.
The daemon reads both at every tick (Knobs); a file that cannot be understood is logged once and counts as absent.
Errors are CloudError: one sentence for the user.

    CloudError (a BoxError)    the node, the zone or the daemon is not as the verb needs it
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from devcluster.cloud import records
from devcluster.cloud.cluster import Attempts
from devcluster.cloud.reclaim import WISH_ANNOTATION, Leave, WishError, check_spot, read_leave
from devcluster.cloud.records import Node, NodeGroupObject
from devcluster.cloud.scaling import SCALE_DOWN_DELAY_SECONDS
from devcluster.settings import ZONES, Box, BoxError
from ebb.kube import NODE_GROUPS, NODES, PODS, Kube, KubeError, NotFound

ANSWER_SECONDS = 10.0  # the daemon answers in less than one
PROGRESS_SECONDS = 5.0
EXIT_DONE = 0

Say = Callable[[str], object]


class CloudError(BoxError):
    """The verb cannot do what it was asked; the message says why and what to do."""


async def reclaim(box: Box, node: str, *, notice_seconds: float | None, wait: bool, say: Say) -> int:
    """Take a spot machine away. `notice_seconds` None: as the node group says; 0: no notice.

    Returns once the daemon has begun, with `wait` once the Node is gone. Raises CloudError.
    """
    try:
        async with Kube.connect(str(box.kubeconfig)) as kube:
            return await _reclaim(kube, box, node, notice_seconds, wait=wait, say=say)
    except WishError as error:
        raise CloudError(str(error)) from error
    except KubeError as error:
        raise CloudError(f"{error}. Is the devcluster up? `python -m devcluster status --box {box.name}` says so.") from error


def exhaust(box: Box, zone: str) -> str:
    """Let a zone run out of machines: those it has stay, it gives no more. Returns the answer for the user. Raises CloudError."""
    _check_zone(zone)
    write_exhausted(box.exhausted, _exhausted_zones(box) | {zone})
    return f"{zone} has no more machines to give; those that run there stay. `python -m devcluster restore {zone}` ends this."


def restore(box: Box, zone: str) -> str:
    """End `exhaust`. Returns the answer for the user. Raises CloudError."""
    _check_zone(zone)
    write_exhausted(box.exhausted, _exhausted_zones(box) - {zone})
    return f"{zone} gives machines again."


async def _reclaim(kube: Kube, box: Box, name: str, notice_seconds: float | None, *, wait: bool, say: Say) -> int:
    node = await _node(kube, name)
    group = await _group(kube, node)
    check_spot(name, group)
    seconds = notice_seconds if notice_seconds is not None else (group.notice_seconds if group else 0)
    if not 0 <= seconds <= 3600:
        raise CloudError(f"--notice {seconds:g} is not possible: say 0 to 3600 seconds, or --no-notice.")
    wish = json.dumps({"noticeSeconds": seconds})
    await kube.patch(NODES, None, name, {"metadata": {"annotations": {WISH_ANNOTATION: wish}}})
    say(f"{name}: reclaim asked for, " + (f"{seconds:g} s of notice" if seconds else "without notice"))
    leave = await _answered(kube, box, name)
    if leave is None:
        say(f"{name}: gone")
        return EXIT_DONE
    say(f"{name}: marked, the machine goes in {max(0.0, leave.deadline - time.time()):.0f} s or when its pods have left")
    if wait:
        await _gone(kube, name, leave, say)
    return EXIT_DONE


async def _answered(kube: Kube, box: Box, name: str) -> Leave | None:
    """The leave that the daemon noted; None when the node is gone already."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_SECONDS):
            async for node in _versions(kube, name):
                if node is None:
                    return None
                leave = read_leave(node)
                if leave is not None and WISH_ANNOTATION not in node.annotations:
                    return leave
    raise CloudError(
        f"the devcluster {box.name!r} did not answer within {ANSWER_SECONDS:g} s: its daemon is not running. "
        f"`python -m devcluster up --box {box.name}` starts it; the machine is then reclaimed."
    )


async def _gone(kube: Kube, name: str, leave: Leave, say: Say) -> None:
    """Return when the Node is gone, with a line about its pods every few seconds."""
    watch = asyncio.create_task(_until_gone(kube, name))
    began = time.time()
    try:
        while not (await asyncio.wait([watch], timeout=PROGRESS_SECONDS))[0]:
            pods = [records.pod(item) for item in await kube.list(PODS, fields=f"spec.nodeName={name}")]
            left = [pod.name for pod in pods if pod.holds_machine]
            say(f"{name}: {leave.deadline - time.time():.0f} s left, still there: {', '.join(left) or 'no pods'}")
        watch.result()
    finally:
        watch.cancel()
    say(f"{name}: gone after {time.time() - began:.1f} s")


async def _until_gone(kube: Kube, name: str) -> None:
    async for node in _versions(kube, name):
        if node is None:
            return


async def _versions(kube: Kube, name: str) -> AsyncIterator[Node | None]:
    """The node as it is now and after every change; None when it is gone, and that is the last."""
    fields = f"metadata.name={name}"
    while True:
        items, version = await kube.list_with_version(NODES, fields=fields)
        yield records.node(items[0]) if items else None
        if not items:
            return
        async for kind, item in kube.watch(NODES, version=version, fields=fields):
            if kind in ("ADDED", "MODIFIED"):
                yield records.node(item)
            elif kind == "DELETED":
                yield None
                return


async def _node(kube: Kube, name: str) -> Node:
    try:
        return records.node(await kube.get(NODES, None, name))
    except NotFound as error:
        names = [item["metadata"]["name"] for item in await kube.list(NODES)]
        raise CloudError(f"there is no node {name!r}; there are: {', '.join(names) or 'none'}.") from error


async def _group(kube: Kube, node: Node) -> NodeGroupObject | None:
    """The node's group; None if it was deleted meanwhile."""
    try:
        return records.node_group(await kube.get(NODE_GROUPS, None, node.group)) if node.group else None
    except NotFound:
        return None


def _check_zone(zone: str) -> None:
    if zone not in ZONES:
        raise CloudError(f"there is no zone {zone!r}; the devcluster has {', '.join(ZONES)}.")


def _exhausted_zones(box: Box) -> frozenset[str]:
    try:
        return read_exhausted(box.exhausted)
    except ValueError as error:
        raise CloudError(f"{error}, after deleting it.") from error


DELAY_KEY = "scaleDownDelaySeconds"


class Knobs:
    """The files in the folder of one devcluster."""

    def __init__(self, folder: Path, attempt: Attempts) -> None:
        self._folder, self._attempt = folder, attempt

    def exhausted(self) -> frozenset[str]:
        """The zones that are out of capacity."""
        try:
            return read_exhausted(self._folder / "dry")
        except ValueError as error:
            self._attempt.say("exhausted zones", str(error))
            return frozenset()

    def scale_down_delay_seconds(self) -> float:
        """Seconds that a machine must be idle before it goes."""
        path = self._folder / "cloud.json"
        written = _read(path, {})
        seconds = written.get(DELAY_KEY, SCALE_DOWN_DELAY_SECONDS) if isinstance(written, dict) else None
        if isinstance(seconds, int | float) and seconds >= 0:
            return float(seconds)
        self._attempt.say("settings", f'{path} must look like {{"{DELAY_KEY}": 20}}, it says {written!r}; 20 is used')
        return SCALE_DOWN_DELAY_SECONDS


def read_exhausted(path: Path) -> frozenset[str]:
    """The zones in the file, none if there is no file. Raises ValueError."""
    zones = _read(path, [])
    if isinstance(zones, list) and all(isinstance(zone, str) for zone in zones):
        return frozenset(zones)
    raise ValueError(f"{path} must be a JSON list of zones, it says {zones!r}: write it with `python -m devcluster exhaust ZONE`")


def write_exhausted(path: Path, zones: frozenset[str]) -> None:
    """Replace the file as a whole."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(sorted(zones)))
    beside.replace(path)


def _read(path: Path, absent: object) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return absent
    except ValueError:
        return path.read_text()[:100]
