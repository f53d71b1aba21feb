"""From the lines of the settings to node groups: one for each zone of a line, with what the catalog and the cloud know of it."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from infra import catalog, config
from infra.config import Stack
from workloads.cluster import MANAGER, ON_DEMAND, SPOT, NodeGroup
from workloads.teams import Team


class Notice(Protocol):
    """A cloud, as far as it is asked here."""

    @property
    def notice_seconds(self) -> int:
        """Seconds between the cloud's warning and the reclaim of a spot machine."""


def manager_groups(stack: Stack) -> list[NodeGroup]:
    """The machines that are always there, first the one in the zone of etcd's disk.

    Each is a group of its own: one group over two zones may, after a loss, have both its machines in the zone without the disk.
    """
    instance = catalog.by_name(stack, stack.manager.instance_type)
    assert instance is not None, stack.manager  # config has checked it
    return [
        NodeGroup(
            name=MANAGER if number == 1 else f"{MANAGER}-{number}",
            label=MANAGER,
            zone=zone,
            instance=instance,
            capacity_type=ON_DEMAND,
            min=1,
            max=1,
            notice_seconds=0,
            selector=getattr(stack.settings, "manager_selector", {}),
        )
        for number, zone in enumerate(stack.manager_zones, 1)
    ]


def manager_group(stack: Stack) -> NodeGroup:
    """The machine in the zone of etcd's disk."""
    return manager_groups(stack)[0]


def split_by_role(groups: Sequence[NodeGroup]) -> tuple[list[NodeGroup], list[NodeGroup]]:
    """The manager's groups, and those for jobs."""
    return [one for one in groups if one.is_manager], [one for one in groups if not one.is_manager]


def job_groups(stack: Stack, cloud: Notice) -> list[NodeGroup]:
    """The machines for jobs, in the order of the settings, then of the zones."""
    return [group for line in stack.node_groups for group in _expanded(line, stack, cloud)]


def _expanded(line: config.NodeGroupSettings, stack: Stack, cloud: Notice) -> Iterator[NodeGroup]:
    machines = catalog.machines(stack, line)
    assert machines, line  # config has checked it
    for zone, name in line.names(stack.zones).items():
        yield NodeGroup(
            name=name,
            zone=zone,
            instance=machines[0],
            others=machines[1:],
            capacity_type=line.capacity,
            min=line.min,
            max=line.max,
            notice_seconds=_notice_seconds(line, cloud),
            max_age_seconds=int(3600 * line.max_age_hours) if line.max_age_hours else 0,
            image=line.image,
            selector=getattr(line.settings, "selector", {}),
            own_taints=tuple((one.key, one.value, one.effect) for one in getattr(line.settings, "taints", ())),
            settings=line.settings,
        )


def _notice_seconds(line: config.NodeGroupSettings, cloud: Notice) -> int:
    """The cloud's, but where the line's own section says less."""
    own: int | None = getattr(line.settings, "notice_seconds", None)
    return 0 if line.capacity != SPOT else cloud.notice_seconds if own is None else own


def teams(stack: Stack) -> list[Team]:
    """The teams of the settings."""

    def subjects(written: Sequence[str]) -> list[tuple[str, str]]:
        return [(kind.capitalize(), name) for kind, _, name in (one.partition(":") for one in written)]

    return [
        Team(
            name=name,
            gpus=one.gpus,
            borrow=one.borrow,
            usd_per_month=one.usd_per_month,
            priority=one.priority or "",
            readers=subjects(one.readers),
            researchers=subjects(one.researchers),
            leads=subjects(one.leads),
        )
        for name, one in stack.teams.items()
    ]
