"""Buckets of Cloud Storage: who reads them, and the volumes of those that are mounted.

    found = buckets.mounts(part, name, settings, kubernetes_provider, add_ons)      # team ("": jobs without one) -> its volumes
    copying = buckets.copies(part, name, settings)                                  # as which account its copies are made

A mounted bucket is read by Cloud Storage FUSE in a container that GKE adds to each worker, as the account `default` of the
worker's namespace: so each team reads its own buckets, and nobody else's. That account has no other right, here or in Kubernetes.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import pulumi
from pulumi_gcp import organizations, serviceaccount, storage
from pulumi_kubernetes.provider import Provider as KubernetesProvider

from infra.clouds.gcp.cluster import account_id
from infra.clouds.gcp.settings import Bucket, Settings
from infra.config.buckets import by_reader, mounted
from infra.part import Part
from infra.volumes import Csi, Volumes
from workloads.cluster import COPY_ACCOUNT, JOBS, TEAMS, CopyIdentity, Sidecar, Volume

DRIVER = "gcsfuse.csi.storage.gke.io"
READ = "roles/storage.objectViewer"
WORKERS = "default"  # the ServiceAccount of workers, which no job can exchange for another
# GKE's metadata server, which knows each pod's identity: with Dataplane V2 at the first address, else at the second
# (.../kubernetes-engine/docs/how-to/workload-identity, the paragraph on network policies, as remembered: it could not be read).
METADATA = (("169.254.169.254/32", 80), ("169.254.169.252/32", 988))
CPU, MEMORY_GIB = 0.25, 1
# https://github.com/GoogleCloudPlatform/gcs-fuse-csi-driver, pkg/webhook/mutatingwebhook.go and config.go, read 2026-11-26: what
# one of a pair does not say is taken from the other, and "0" is no limit. Like a worker's loaders it may use CPUs that are idle.
# Its memory is its own, as a machine's is handed out whole. What only reads, without a cache on disk, needs no room there.
SIDECAR = Sidecar(
    annotations={
        "gke-gcsfuse/volumes": "true",
        "gke-gcsfuse/cpu-request": f"{CPU * 1000:g}m",
        "gke-gcsfuse/cpu-limit": "0",
        "gke-gcsfuse/memory-request": f"{MEMORY_GIB}Gi",
        "gke-gcsfuse/memory-limit": f"{MEMORY_GIB}Gi",
        "gke-gcsfuse/ephemeral-storage-request": "0",
        "gke-gcsfuse/ephemeral-storage-limit": "0",
    },
    cpu=CPU,
    memory_gib=MEMORY_GIB,
    addresses=METADATA,
)


def mounts(
    part: Part, name: str, settings: Settings, provider: KubernetesProvider, add_ons: Sequence[pulumi.Resource]
) -> dict[str, list[Volume]]:
    """By team ("": jobs without one): its mounted buckets. Their volumes come after the right to read them, and go before."""
    readers = by_reader(mounted(settings.storage.buckets))
    if not readers:
        return {}
    pool = _pool(part, settings)
    made = {}
    for team, read in readers.items():
        namespace, called = (f"{TEAMS}{team}", f"mount-{team}") if team else (JOBS, "mount")
        member = pulumi.Output.concat(pool, f"/subject/ns/{namespace}/sa/{WORKERS}")
        volumes = Volumes(part, name, provider, [*_rights(part, called, read, member), *add_ons])
        made[team] = [_volume(volumes, one, team) for one in read]
    return made


def _pool(part: Part, settings: Settings) -> pulumi.Output[str]:
    """The project's accounts of Kubernetes in IAM's words, which name the project by its number (docs/authentication.md of the
    driver's repository, read 2026-11-26)."""
    project = organizations.get_project_output(project_id=settings.project, opts=pulumi.InvokeOutputOptions(parent=part)).number
    where = f"/locations/global/workloadIdentityPools/{settings.project}.svc.id.goog"
    return pulumi.Output.concat("principal://iam.googleapis.com/projects/", project, where)


def _volume(volumes: Volumes, one: Bucket, team: str) -> Volume:
    """The handle is the bucket, and after a colon a name that no other volume of it has. Whoever a worker runs as may read.
    Options are those of gcsfuse (docs/sub-directory-mounts.md, pkg/csi_driver/utils.go and pull request 559 of the driver's
    repository, read 2026-11-26); without implicit-dirs a folder shows only what has an object of its own for it."""
    source = Csi(
        driver=DRIVER,
        handle=pulumi.Output.from_input(f"{one.bucket}:{f'{team}-' if team else ''}{one.name}"),
        mount_options=(
            *("ro", "implicit-dirs", "file-mode=444", "dir-mode=555"),
            *((f"only-dir={one.prefix}",) if one.prefix else ()),
        ),
    )
    made = volumes.shared(one.name, source, claim=f"ebb-{one.name}", mount_path=f"/mnt/{one.name}", size_gib=1, team=team)
    return replace(made, read_only=True, sidecar=SIDECAR)


def copies(part: Part, name: str, settings: Settings) -> dict[str, CopyIdentity]:
    """By team ("": jobs without one): a service account that may read that team's buckets and nothing else, and that the pods
    which copy may be. They copy mounted ones too, if a job names the address."""
    return {team: _copying(part, name, settings, team, read) for team, read in by_reader(settings.storage.buckets).items()}


def _copying(part: Part, name: str, settings: Settings, team: str, read: Sequence[Bucket]) -> CopyIdentity:
    namespace, called = (f"{TEAMS}{team}", f"copy-{team}") if team else (JOBS, "copy")
    # An account's name has 30 characters, and a team's up to 20.
    short = f"copy-{hashlib.sha256(team.encode()).hexdigest()[:6]}" if team else called
    title = f"Copies of buckets for {name}{', team ' * bool(team)}{team}"
    account = serviceaccount.Account(called, account_id=account_id(name, short), display_name=title, opts=part.child())
    pods = f"serviceAccount:{settings.project}.svc.id.goog[{namespace}/{COPY_ACCOUNT}]"
    be = serviceaccount.IAMMember(
        called, service_account_id=account.name, role="roles/iam.workloadIdentityUser", member=pods, opts=part.child()
    )
    rights = _rights(part, called, read, pulumi.Output.concat("serviceAccount:", account.email))
    return CopyIdentity(
        buckets={one.name: one.url for one in read},
        annotations={"iam.gke.io/gcp-service-account": account.email},
        addresses=METADATA,
        ready=[be, *rights],
    )


def _rights(part: Part, called: str, read: Sequence[Bucket], member: pulumi.Output[str]) -> list[pulumi.Resource]:
    """Once for each bucket, however many of its folders are named: the role has none."""
    return [
        storage.BucketIAMMember(f"{called}-{bucket}", bucket=bucket, role=READ, member=member, opts=part.child())
        for bucket in dict.fromkeys(one.bucket for one in read)
    ]
