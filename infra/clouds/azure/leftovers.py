"""Leftovers of a stack on Azure: resource groups that are still there, and whatever has the stack's tag.

Azure keeps everything in resource groups, and a group goes with all that is in it: so few commands remove all. A thing counts by
its group's name (ebb-<stack>, -nodes, -data) or by the tag ebb-stack, wherever it is.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from infra.account.leftovers import search
from infra.account.records import Left, Seen
from infra.clouds.azure import names
from infra.clouds.azure.look import GROUPS_VERSION, RESOURCES_VERSION, find
from infra.clouds.azure.rest import Arm
from infra.clouds.azure.settings import Settings
from infra.config import Stack

# Groups in the order in which the commands work: AKS's own group goes with the cluster.
GROUPS = ("", "-nodes", "-data")


def seen(stack_name: str, stack: Stack, say: Callable[[str], None], arm: Arm | None = None) -> Seen:
    """Everything, with progress. Raises CannotLook."""
    settings: Settings = stack.settings
    asked, name = arm or Arm(settings.subscription_id), f"ebb-{stack_name}"
    say(f"searching for {name} in subscription {settings.subscription_id}")
    groups = [f"{name}{end}" for end in GROUPS]
    searches: dict[str, Callable[[], Iterable[Left]]] = {
        f"resource group {group}": partial(_group, asked, group, settings) for group in groups
    }
    searches["the stack's tag"] = partial(_tagged, asked, stack_name, set(groups))
    return search(searches, say)


def _group(arm: Arm, name: str, settings: Settings) -> Iterator[Left]:
    """A group that is still there, with what is in it."""
    if find(arm, f"/resourceGroups/{name}", GROUPS_VERSION) is None:
        return
    inside = arm.all(f"/resourceGroups/{name}/resources", RESOURCES_VERSION)
    keeps = settings.storage.data == "keep" and name.endswith("-data")
    yield Left(
        kind="resource group",
        name=name,
        note=_counted(inside),
        usd_per_month=0.0 if not inside else None,
        remove=f"az group delete --subscription {settings.subscription_id} --name {name} --yes",
        kept="storage.data: keep; azure.storage.files.shareId takes it back" if keeps else "",
    )


def _counted(inside: list[dict[str, Any]]) -> str:
    """2 disks, 1 virtualMachineScaleSets"""
    kinds = [one["type"].rpartition("/")[2] for one in inside]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(sorted(kinds))) or "empty"


def _tagged(arm: Arm, stack_name: str, groups: set[str]) -> Iterator[Left]:
    """Things with the stack's tag in another group, as somebody has moved or restored it."""
    wanted = f"tagName eq '{names.STACK}' and tagValue eq '{stack_name}'"
    for one in arm.all("/resources", RESOURCES_VERSION, **{"$filter": wanted}):
        group = one["id"].split("/")[4]
        if group.lower() not in {name.lower() for name in groups}:
            remove = f"az resource delete --ids {one['id']}"
            yield Left(kind=one["type"], name=one["name"], note=f"in {group}", usd_per_month=None, remove=remove)
