"""Label nodes that Ebb did not make: `python -m ebb.controller.node_labels`.

On somebody else's cluster a node group is a selector (infra/clouds/kubeconfig.py). Each node that matches one gets the labels
by which pods, the CLI and the bills know a group's machines: ebb.dev/*, and topology.kubernetes.io/zone where the node has none.
A node that matches no more loses them, and every node does when ConfigMap `ebb-platform` goes, with a `pulumi destroy`.

A node with a zone of its own is of that zone's group alone. Where several groups fit, the first of the stack's file has it.
It runs until SIGTERM. Exit codes: 0 told to stop, 1 an error: whoever started it starts it again.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ebb.api import json_logs as logs
from ebb.api.contract import LABEL_ZONE, MANAGER_GROUP
from ebb.api.platform import NAME, NAMESPACE
from ebb.kube import Kube, KubeconfigError
from ebb.kube.errors import KubeError, NotFound
from ebb.kube.kinds import CONFIG_MAPS, NODES, Object
from ebb.kube.reflector import Reflector

PREFIX = "ebb.dev/"
ZONE_IS_OURS = "ebb.dev/zone"  # on a node whose zone this program wrote: it may take it away again
RETRY_SECONDS = 5.0
log = logging.getLogger("node-labels")


@dataclass(frozen=True, kw_only=True)
class SelectedGroup:
    """One node group, as far as it matters here."""

    zone: str
    selector: Mapping[str, str]
    labels: Mapping[str, str]


def groups_of(config_map: Object | None) -> list[SelectedGroup]:
    """Those for jobs that choose nodes, in the stack's order; none without the ConfigMap. Raises ValueError, KeyError."""
    if config_map is None:
        return []
    return [
        SelectedGroup(zone=one["zone"], selector=one["selector"], labels=one["labels"])
        for one in json.loads(config_map["data"]["platform.json"])["nodeGroups"]
        if one.get("selector") and one["name"] != MANAGER_GROUP
    ]


def change(labels: Mapping[str, str], groups: Iterable[SelectedGroup]) -> dict[str, str | None]:
    """The merge patch of a node's labels: None removes one. Empty: nothing is to change."""
    ours = {key for key in labels if key.startswith(PREFIX)} | ({LABEL_ZONE} if ZONE_IS_OURS in labels else set())
    foreign = {key: value for key, value in labels.items() if key not in ours}
    wanted: dict[str, str] = {}
    for group in groups:
        if foreign.get(LABEL_ZONE, group.zone) == group.zone and group.selector.items() <= foreign.items():
            wanted = dict(group.labels)
            if LABEL_ZONE not in foreign:
                wanted |= {LABEL_ZONE: group.zone, ZONE_IS_OURS: group.zone}
            break
    gone: dict[str, str | None] = {key: None for key in ours if key not in wanted}
    return gone | {key: value for key, value in wanted.items() if labels.get(key) != value}


class NodeLabels:
    """The nodes of one cluster, and what the stack says of them."""

    def __init__(self, api: Kube) -> None:
        self._api, self._news = api, asyncio.Event()
        self._nodes = Reflector(api, NODES, on_change=self._hear)
        fields = f"metadata.name={NAME}"
        self._platform = Reflector(api, CONFIG_MAPS, NAMESPACE, fields=fields, on_change=self._hear)

    def _hear(self, _old: Object | None, _new: Object | None) -> None:
        self._news.set()

    async def run(self) -> None:
        """Never returns; what fails is tried again."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._nodes.run())
            tasks.create_task(self._platform.run())
            await self._nodes.synced.wait()
            await self._platform.synced.wait()
            while True:
                self._news.clear()
                if await self._write(self._groups()):
                    await self._news.wait()
                else:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._news.wait(), RETRY_SECONDS)

    async def leave(self) -> None:
        """Take all labels away if the stack is gone: nobody comes after this program to do it. Raises KubeError."""
        try:
            await self._api.get(CONFIG_MAPS, NAMESPACE, NAME)
        except NotFound:
            for node in await self._api.list(NODES):
                await self._patch(node, [])

    def _groups(self) -> list[SelectedGroup]:
        found = next(iter(self._platform.objects.values()), None)
        return groups_of(found)

    async def _write(self, groups: Sequence[SelectedGroup]) -> bool:
        """False if a node could not be written."""
        whole = True
        for node in list(self._nodes.objects.values()):
            try:
                await self._patch(node, groups)
            except NotFound:
                continue  # it went
            except KubeError as error:
                log.warning("node %s: %s", node["metadata"]["name"], error)
                whole = False
        return whole

    async def _patch(self, node: Object, groups: Sequence[SelectedGroup]) -> None:
        name, changed = node["metadata"]["name"], change(node["metadata"].get("labels") or {}, groups)
        if changed:
            self._nodes.observe(await self._api.patch(NODES, None, name, {"metadata": {"labels": changed}}))
            said = ", ".join(f"{key}={value}" if value is not None else f"{key}-" for key, value in sorted(changed.items()))
            log.info("node %s: %s", name, said)


async def run(kubeconfig: str | None) -> None:
    """Until SIGTERM or SIGINT. Raises KubeError."""
    stop = asyncio.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(one, stop.set)
    async with Kube.connect(kubeconfig) as api:
        labels = NodeLabels(api)
        working, told = asyncio.create_task(labels.run()), asyncio.create_task(stop.wait())
        await asyncio.wait({working, told}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        working.cancel()
        await labels.leave()


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m ebb.controller.node_labels", description="Labels the nodes of node groups.")
    parser.add_argument("--kubeconfig", help="default: the pod's service account, else $KUBECONFIG or ~/.kube/config")
    given = parser.parse_args(arguments)
    logs.set_up(logs.default_format(), logging.INFO)
    try:
        asyncio.run(run(given.kubeconfig))
    except (KubeError, KubeconfigError) as error:
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
