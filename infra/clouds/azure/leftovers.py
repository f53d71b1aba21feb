"""What `pulumi destroy` of a stack on Azure may leave: resource groups that are still there, and whatever has the stack's tag.

Azure keeps everything in resource groups, and a group goes with all that is in it: so few commands remove all. A thing counts by
its group's name (ebb-<stack>, -nodes, -data) or by the tag ebb-stack, wherever it is.
"""

from collections.abc import Callable, Iterator
from typing import Any

from infra.account.leftovers import Left, Seen
from infra.clouds.azure import names
from infra.clouds.azure.look import GROUPS_VERSION, RESOURCES_VERSION, found
from infra.clouds.azure.rest import Arm, NoAccess, Refused
from infra.clouds.azure.settings import Settings
from infra.config import Stack

# Groups in the order in which the commands work: AKS's own group goes with the cluster.
GROUPS = ("", "-nodes", "-data")


def seen(stack_name: str, stack: Stack, say: Callable[[str], None], arm: Arm | None = None) -> Seen:
    """Everything, with progress. Raises CannotLook."""
    settings: Settings = stack.settings
    asked, name = arm or Arm(settings.subscription_id), f"ebb-{stack_name}"
    say(f"looking for {name} in subscription {settings.subscription_id}")
    things: list[Left] = []
    blind: list[str] = []
    for group in [f"{name}{end}" for end in GROUPS]:
        say(f"  resource group {group}")
        _look(lambda one=group: _group(asked, one, settings), f"resource group {group}", things, blind)  # type: ignore[misc]
    say(f"  everything with the tag {names.STACK}")
    _look(lambda: _tagged(asked, stack_name, {f"{name}{end}" for end in GROUPS}), "the stack's tag", things, blind)
    return Seen(things=tuple(things), blind=tuple(blind))


def _look(search: Callable[[], Iterator[Left]], what: str, things: list[Left], blind: list[str]) -> None:
    """One search; what cannot be looked at is said, and hides no other."""
    try:
        things += search()
    except NoAccess:
        raise
    except Refused as error:
        blind.append(f"{what}: {error}")


def _group(arm: Arm, name: str, settings: Settings) -> Iterator[Left]:
    """A group that is still there, with what is in it."""
    if found(arm, f"/resourceGroups/{name}", GROUPS_VERSION) is None:
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
    """What has the stack's tag in another group, as somebody has moved or restored it."""
    wanted = f"tagName eq '{names.STACK}' and tagValue eq '{stack_name}'"
    for one in arm.all("/resources", RESOURCES_VERSION, **{"$filter": wanted}):
        group = one["id"].split("/")[4]
        if group.lower() not in {name.lower() for name in groups}:
            remove = f"az resource delete --ids {one['id']}"
            yield Left(kind=one["type"], name=one["name"], note=f"in {group}", usd_per_month=None, remove=remove)
