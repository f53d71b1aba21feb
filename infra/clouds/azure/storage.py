"""The stack's storage: an Azure Files share over NFS for the jobs, blob containers to read from, a disk for etcd.

    declared = storage.declare(base, network, control, kubernetes_provider)
    declared.commands                                  # what a researcher types to mount the share: for the stack's outputs

Data and output are folders of one share; the Job prepare-storage makes them, owned by the images' user. The share has a private
address alone. It is in a resource group of its own, for a group takes all that is in it along when it goes: with `data: keep`,
group, account and share stay, and `azure.storage.files.shareId` takes them back.

NFS knows no passwords: who reaches the address may mount. The network's security group says who does; what is on the way is not
encrypted, and does not leave the network.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native.compute import Disk
from pulumi_azure_native.network import PrivateDnsZoneGroup, PrivateEndpoint
from pulumi_azure_native.privatedns import PrivateZone, VirtualNetworkLink
from pulumi_azure_native.resources import ResourceGroup
from pulumi_azure_native.storage import FileShare, StorageAccount
from pulumi_kubernetes.provider import Provider as KubernetesProvider

from infra.clouds.azure import buckets, names
from infra.clouds.azure.base import Base, only_new
from infra.clouds.azure.cluster import ControlPlane
from infra.clouds.azure.network import Network
from infra.part import Part
from infra.volumes import Csi, Volumes
from workloads import cluster as records

FILES, DISKS = "file.csi.azure.com", "disk.csi.azure.com"
DOMAIN, PRIVATE_DOMAIN = "file.core.windows.net", "privatelink.file.core.windows.net"
SHARE = "ebb"
KEEP, PROTECT = "keep", "protect"
ROOT_CLAIM, ROOT_PATH = "efs-claim", "/mnt/efs"  # as the step-by-step articles have them
# https://learn.microsoft.com/azure/aks/create-volume-azure-files#recommended-mount-options-for-nfs-shares, as of 2026-08. Not
# its actimeo=30, which would show one machine's new checkpoint to the next half a minute late.
MOUNT_OPTIONS = ("nconnect=4", "noresvport")
REDUNDANCY = {"zone": "Premium_ZRS", "local": "Premium_LRS"}

Command = pulumi.Output[str]


@dataclass(frozen=True, kw_only=True)
class Storage(records.Storage):
    """`commands`: what to type on a machine of `storage.clients`, by what it does."""

    commands: Mapping[str, Command]


@dataclass(frozen=True, kw_only=True)
class Share:
    """A file share. `address`: its private one; `ready`: what a mount needs, which goes after all mounts."""

    account: pulumi.Output[str]
    name: pulumi.Output[str]
    address: pulumi.Output[str]
    ready: Sequence[pulumi.Resource]


def declare(base: Base, network: Network, control: ControlPlane, kubernetes_provider: KubernetesProvider) -> Storage:
    """The share, the disk of etcd, and their volumes."""
    part, sizes, wanted = base.part("storage"), base.stack.storage, base.settings.storage
    share = _share(base, part, network)
    disk, attach = _etcd_disk(base, part, control)
    volumes = Volumes(part, base.name, kubernetes_provider, [*share.ready, attach, control.resource])
    jobs = [
        volumes.shared("data", _folder(share, "data"), claim="ebb-data", mount_path="/mnt/data", size_gib=sizes.data_gib),
        volumes.shared(
            "output", _folder(share, "output"), claim="ebb-output", mount_path="/mnt/output", size_gib=sizes.output_gib
        ),
    ]
    files = buckets.mounts(base, part, control, kubernetes_provider)
    jobs += files.pop("", [])
    whole = sizes.data_gib + sizes.output_gib
    return Storage(
        jobs=tuple(jobs),
        root=volumes.shared("efs", _folder(share), claim=ROOT_CLAIM, mount_path=ROOT_PATH, size_gib=whole),
        etcd=volumes.disk(
            "etcd",
            Csi(driver=DISKS, handle=disk.id, fs_type="ext4", attributes={"cachingMode": "None"}),
            claim="etcd-data",
            mount_path="/var/lib/etcd",
            zone=base.stack.manager.zone,
            size_gib=wanted.etcd_gib,
        ),
        commands=_commands(share),
        teams={
            team: (*held, *files.get(team, ()))
            for team, held in volumes.of_teams(
                base.stack.teams, lambda path: _folder(share, path), {"data": sizes.data_gib, "output": sizes.output_gib}
            ).items()
        },
    )


def _share(base: Base, part: Part, network: Network) -> Share:
    """A new one, or one that exists; with a private address in the stack's network, which comes and goes with the stack."""
    given, made = base.settings.storage.files.share_id, None
    if given:
        owner_id, _, share = given.partition("/fileServices/default/shares/")
        account, account_name, name = map(pulumi.Output.from_input, (owner_id, owner_id.rpartition("/")[2], share))
    else:
        owner, made = _made(base, part)
        account, account_name, name = owner.id, owner.name, made.name
    address, ready = _address(base, part, network, account)
    return Share(
        account=account_name,
        name=name,
        address=address,
        ready=[*([made] if made else []), *ready],
    )


def _made(base: Base, part: Part) -> tuple[StorageAccount, FileShare]:
    """In a resource group of their own."""
    on_destroy, sizes = base.settings.storage.data, base.stack.storage

    def data() -> pulumi.ResourceOptions:
        return part.child(retain_on_delete=on_destroy == KEEP, protect=on_destroy == PROTECT)

    group = ResourceGroup(
        f"{base.name}-data",
        resource_group_name=f"{base.name}-data",
        location=base.settings.location,
        tags=base.tags,
        opts=data(),
    )
    account = StorageAccount(
        f"{base.name}-data",
        account_name=names.world_wide(base.name.removeprefix("ebb-"), base.settings.subscription_id),
        resource_group_name=group.name,
        location=base.settings.location,
        kind="FileStorage",
        sku={"name": REDUNDANCY[base.settings.storage.files.redundancy]},
        enable_https_traffic_only=False,  # which NFS without TLS asks for
        allow_shared_key_access=False,
        allow_blob_public_access=False,
        minimum_tls_version="TLS1_2",
        public_network_access="Disabled",
        tags=base.tags,
        opts=data(),
    )
    share = FileShare(
        f"{base.name}-data",
        share_name=SHARE,
        account_name=account.name,
        resource_group_name=group.name,
        enabled_protocols="NFS",
        root_squash="NoRootSquash",  # the Job that makes the folders is root
        share_quota=sizes.data_gib + sizes.output_gib,
        opts=data(),
    )
    return account, share


def _address(
    base: Base, part: Part, network: Network, account: pulumi.Input[str]
) -> tuple[pulumi.Output[str], list[pulumi.Resource]]:
    """A private address for an account ("" while Azure does not say it), and what a mount by the account's name needs."""
    name, group = f"{base.name}-files", base.group.name
    zone = PrivateZone(
        name,
        private_zone_name=PRIVATE_DOMAIN,
        resource_group_name=group,
        location="global",
        tags=base.tags,
        opts=part.child(),
    )
    link = VirtualNetworkLink(
        name,
        virtual_network_link_name=base.name,
        private_zone_name=zone.name,
        resource_group_name=group,
        location="global",
        registration_enabled=False,
        virtual_network={"id": network.id},
        tags=base.tags,
        opts=part.child(**only_new("virtualNetwork")),
    )
    endpoint = PrivateEndpoint(
        name,
        private_endpoint_name=name,
        resource_group_name=group,
        location=base.settings.location,
        subnet={"id": network.endpoints},
        private_link_service_connections=[{"name": "files", "private_link_service_id": account, "group_ids": ["file"]}],
        tags=base.tags,
        opts=part.child(depends_on=[network.part]),
    )
    entry = PrivateDnsZoneGroup(
        name,
        private_dns_zone_group_name="default",
        private_endpoint_name=endpoint.name,
        resource_group_name=group,
        private_dns_zone_configs=[{"name": "files", "private_dns_zone_id": zone.id}],
        opts=part.child(),
    )
    # Not the endpoint's customDnsConfigs: Azure empties them once a zone group is attached, so a refresh finds none
    # (https://registry.terraform.io/providers/hashicorp/azurerm/latest/docs/resources/private_endpoint, custom_dns_configs).
    address = entry.private_dns_zone_configs.apply(
        lambda configs: next(
            (str(ip) for one in configs or [] for record in one.record_sets or [] for ip in record.ip_addresses or []), ""
        )
    )
    return address, [link, endpoint, entry]


def _folder(share: Share, folder: str = "") -> Csi:
    """The share, or a folder of it, which must exist by then: prepare-storage mounts the share itself, and runs first."""
    attributes: dict[str, pulumi.Input[str]] = {
        "protocol": "nfs",
        "storageAccount": share.account,
        "shareName": share.name,
        "server": pulumi.Output.concat(share.account, ".", DOMAIN),
        # By default the driver gives everything to everybody (0777), and changes the owner of each file when a pod wants a group.
        "mountPermissions": "0",
        "fsGroupChangePolicy": "None",
    }
    if folder:
        attributes["folderName"] = folder
    handle = pulumi.Output.concat(share.account, "#", share.name, "#", folder or "root")
    return Csi(driver=FILES, handle=handle, attributes=attributes, mount_options=MOUNT_OPTIONS)


def _etcd_disk(base: Base, part: Part, control: ControlPlane) -> tuple[Disk, pulumi.Resource]:
    """In the manager's zone, and the right of the cluster to attach it."""
    disk = Disk(
        f"{base.name}-etcd",
        disk_name=f"{base.name}-etcd",
        resource_group_name=base.group.name,
        location=base.settings.location,
        sku={"name": "Premium_LRS"},
        zones=[names.number(base.stack.manager.zone)],
        creation_data={"create_option": "Empty"},
        disk_size_gb=base.settings.storage.etcd_gib,
        public_network_access="Disabled",
        network_access_policy="DenyAll",
        tags=base.tags,
        opts=part.child(**only_new("zones")),
    )
    return disk, base.allow(part, "etcd-disk", "Virtual Machine Contributor", control.identity, disk.id)


def _commands(share: Share) -> dict[str, Command]:
    """By any NFS client; the options are those of public scripts that mount such shares, and of MOUNT_OPTIONS. Where the name
    does not resolve to the private address, `mountHosts` is the line for /etc/hosts."""
    server = pulumi.Output.concat(share.account, ".", DOMAIN)
    path = pulumi.Output.concat(server, ":/", share.account, "/", share.name)
    options = "-t nfs -o vers=4,minorversion=1,sec=sys,nconnect=4,noresvport"

    def mount(folder: str, below: str = "") -> Command:
        return pulumi.Output.concat(f"sudo mkdir -p {folder} && sudo mount {options} ", path, below, f" {folder}")

    found = {
        "mountData": mount("/mnt/data", "/data"),
        "mountOutput": mount("/mnt/output", "/output"),
        "mountAll": mount(ROOT_PATH),
    }
    unknown = "# Azure had not given the share its address yet: pulumi refresh"
    return found | {
        "mountHosts": pulumi.Output.all(share.address, server).apply(lambda both: " ".join(both) if both[0] else unknown)
    }
