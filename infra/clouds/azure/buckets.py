"""Containers of Azure Blob Storage: who reads them, and the volumes that they are mounted as.

    found = buckets.mounts(base, part, control, kubernetes_provider)      # team ("": jobs without one) -> its volumes

The machine's driver mounts one for each worker, by blobfuse, with the worker's own word for who it is: the Kubernetes account
`default` of its namespace is a managed identity of Azure, of the team or of jobs without one, which may read these containers and
nothing else. Pods need no way to the metadata address for it, and no container beside them.
"""

from collections.abc import Sequence
from dataclasses import replace

import pulumi
from pulumi_azure_native.managedidentity import FederatedIdentityCredential, UserAssignedIdentity
from pulumi_kubernetes.provider import Provider as KubernetesProvider

from infra.clouds.azure.base import Base
from infra.clouds.azure.cluster import ControlPlane
from infra.clouds.azure.settings import Bucket
from infra.config.buckets import by_reader
from infra.part import Part
from infra.volumes import Csi, Volumes
from workloads.cluster import JOBS, TEAMS, Volume

DRIVER = "blob.csi.azure.com"
READ = "Storage Blob Data Reader"
WORKERS = "default"  # the ServiceAccount of workers, which no job can exchange for another
AUDIENCE = "api://AzureADTokenExchange"
CACHE_MIB = 8192  # on the machine's disk, for each worker: by default each would take 80 % of what is free


def mounts(base: Base, part: Part, control: ControlPlane, provider: KubernetesProvider) -> dict[str, list[Volume]]:
    """By team ("": jobs without one): its containers. Their volumes come after the right to read them, and go before."""
    made = {}
    for team, read in by_reader(base.settings.storage.buckets).items():
        suffix = f"buckets-{team}" if team else "buckets"
        identity = UserAssignedIdentity(
            f"{base.name}-{suffix}",
            resource_name_=f"{base.name}-{suffix}",
            resource_group_name=base.group.name,
            location=base.settings.location,
            tags=base.tags,
            opts=part.child(),
        )
        namespace = f"{TEAMS}{team}" if team else JOBS
        ready = [_trust(base, part, control, identity, suffix=suffix, namespace=namespace)]
        ready += _rights(base, part, identity, suffix, read)
        volumes = Volumes(part, base.name, provider, [*ready, control.resource])
        made[team] = [_volume(volumes, one, identity, team) for one in read]
    return made


def _trust(
    base: Base, part: Part, control: ControlPlane, identity: UserAssignedIdentity, *, suffix: str, namespace: str
) -> pulumi.Resource:
    """Azure takes a word of Kubernetes that a pod is that account."""
    return FederatedIdentityCredential(
        f"{base.name}-{suffix}",
        federated_identity_credential_resource_name="workers",
        resource_name_=identity.name,
        resource_group_name=base.group.name,
        issuer=control.issuer,
        subject=f"system:serviceaccount:{namespace}:{WORKERS}",
        audiences=[AUDIENCE],
        opts=part.child(),
    )


def _rights(base: Base, part: Part, identity: UserAssignedIdentity, suffix: str, read: Sequence[Bucket]) -> list[pulumi.Resource]:
    """Once for each container, however many of its folders are named: the role has none."""
    return [
        base.allow(part, f"{suffix}-{'-'.join(_parts(one))}", READ, identity.principal_id, one)
        for one in dict.fromkeys(bucket.container_id for bucket in read)
    ]


def _volume(volumes: Volumes, one: Bucket, identity: UserAssignedIdentity, team: str) -> Volume:
    """https://github.com/kubernetes-sigs/blob-csi-driver, docs/workload-identity-static-pv-mount.md and driver-parameters.md (a
    mount by the token alone, and no account key, is a preview of the driver from 1.27.0 on), and the options of blobfuse2 in
    https://github.com/Azure/azure-storage-fuse, README.md; all read 2026-11-26. A handle has neither # nor /. Virtual folders
    are those that are in the names of blobs alone."""
    account, container = _parts(one.container_id)
    words = one.container_id.split("/")
    source = Csi(
        driver=DRIVER,
        handle=pulumi.Output.from_input("_".join((account, container, *((team,) if team else ()), one.name))),
        attributes={
            "protocol": "fuse2",
            "subscriptionID": words[words.index("subscriptions") + 1],
            "resourceGroup": words[words.index("resourceGroups") + 1],
            "storageAccount": account,
            "containerName": container,
            "clientID": identity.client_id,
            "mountWithWorkloadIdentityToken": "true",
        },
        mount_options=(
            *("-o allow_other", "--read-only=true", "--virtual-directory=true"),
            *("--file-cache-timeout-in-seconds=120", f"--cache-size-mb={CACHE_MIB}"),
            *((f"--subdirectory={one.folder}",) if one.folder else ()),
        ),
    )
    made = volumes.shared(one.name, source, claim=f"ebb-{one.name}", mount_path=f"/mnt/{one.name}", size_gib=1, team=team)
    return replace(made, read_only=True)


def _parts(container_id: str) -> tuple[str, str]:
    """The names of its account and of the container."""
    words = container_id.split("/")
    return words[words.index("storageAccounts") + 1], words[-1]
