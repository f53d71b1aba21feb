"""Facts that follow from a node group's record and the settings: the pool's name, its own section, the disk. Pure."""

from infra.clouds.azure import names
from infra.clouds.azure.catalog import AzureInstance
from infra.clouds.azure.settings import GroupSettings, Settings
from workloads.cluster import NodeGroup


def pool(group: NodeGroup) -> str:
    """The name of its agent pool."""
    return names.pool(group.name, group.capacity_type, group.instance.gpu_type, group.zone)


def own(group: NodeGroup) -> GroupSettings:
    """Section `azure` of the group."""
    return group.settings if isinstance(group.settings, GroupSettings) else GroupSettings()


def system_disk(group: NodeGroup, settings: Settings) -> tuple[int, str]:
    """Its size in GiB and its kind. On the machine's own temporary disk it is fast and free, and nothing on it is to be kept."""
    size = own(group).disk_gib or settings.nodes.disk_gib
    fits = isinstance(group.instance, AzureInstance) and group.instance.temp_disk_gib >= size
    return size, "Ephemeral" if fits else "Managed"
