"""The control plane: who reaches it, and versions that belong together."""

from collections.abc import Iterator

from infra.clouds.aws.settings import Settings
from infra.config import Problem, Stack
from infra.config.cidrs import not_public

ALWAYS = (
    "vpc-cni",
    "kube-proxy",
    "coredns",
    "eks-pod-identity-agent",
    "aws-ebs-csi-driver",
    "metrics-server",
    "eks-node-monitoring-agent",
)
EFS, FSX = "aws-efs-csi-driver", "aws-fsx-csi-driver"
VERSION = "aws.cluster.kubernetesVersion"
RANGES = 40  # EKS's quota "Public endpoint access CIDR ranges per cluster" (EKS user guide, service quotas, read 2026-11-21)


def needed_add_ons(settings: Settings) -> tuple[str, ...]:
    """The EKS add-ons of the stack, each of which is pinned."""
    storage = settings.storage
    return (*ALWAYS, *((EFS,) if storage.efs else ()), *((FSX,) if storage.fsx else ()))


def problems(stack: Stack, settings: Settings) -> Iterator[Problem]:
    """What disagrees."""
    yield from _endpoint(settings)
    yield from _people(settings)
    yield from _add_ons(settings)
    minor, key = settings.cluster.kubernetes_version, settings.cluster.encryption_key_arn
    if key and key.split(":")[3] != settings.region:
        text = f"found a key of {key.split(':')[3]}; the cluster is in {settings.region}: name a key of that region"
        yield Problem("aws.cluster.encryptionKeyArn", text, ("aws.region",))
    version = settings.autoscaler.version
    if not version.startswith(f"v{minor}."):
        yield Problem(
            "aws.autoscaler.version",
            f"found {version!r}; allowed is v{minor}.x, as the cluster is {minor} and the autoscaler is "
            "made for one minor version: change one of the two",
            (VERSION,),
        )


def _endpoint(settings: Settings) -> Iterator[Problem]:
    cluster, key = settings.cluster, "aws.cluster.publicAccessCidrs"
    if cluster.endpoint == "private":
        if cluster.public_access_cidrs:
            yield Problem(
                key, "a private endpoint has no public access: remove it, or set endpoint: public", ("aws.cluster.endpoint",)
            )
        if not cluster.up_reaches_vpc:
            yield Problem(
                "aws.cluster.upReachesVpc",
                "a private endpoint is reached from inside the VPC only, and `pulumi up` makes Kubernetes objects: run it there "
                "(VPN, bastion) and set upReachesVpc: true, or set endpoint: public",
                ("aws.cluster.endpoint",),
            )
        return
    if not cluster.public_access_cidrs:
        text = "missing: a public endpoint needs the ranges that may reach it, such as the office's 198.51.100.0/24"
        yield Problem(key, text, ("aws.cluster.endpoint",))
    if len(cluster.public_access_cidrs) > RANGES:
        yield Problem(key, f"found {len(cluster.public_access_cidrs)} ranges; EKS allows {RANGES}: join some")
    for cidr in dict.fromkeys(cluster.public_access_cidrs):
        if text := not_public(cidr):
            yield Problem(key, text)


def _people(settings: Settings) -> Iterator[Problem]:
    cluster = settings.cluster
    for key, arns in {"administrators": cluster.administrators, "researchers": cluster.researchers}.items():
        for arn in sorted({one for one in arns if arns.count(one) > 1}):
            yield Problem(f"aws.cluster.{key}", f"{arn!r} is there twice: remove one")


def _add_ons(settings: Settings) -> Iterator[Problem]:
    cluster, needed, key = settings.cluster, needed_add_ons(settings), "aws.cluster.addOns"
    for name in needed:
        if name not in cluster.add_ons:
            yield Problem(
                f"{key}.{name}",
                f"missing: pin a version, or any `up` could change it under running jobs; `aws eks describe-addon-versions "
                f"--addon-name {name} --kubernetes-version {cluster.kubernetes_version}` lists them",
                ("aws.storage.efs", "aws.storage.fsx", key) if name in {EFS, FSX} else (key,),
            )
    proxy = cluster.add_ons.get("kube-proxy", "")
    if proxy and not proxy.startswith(f"v{cluster.kubernetes_version}."):
        allowed = f"v{cluster.kubernetes_version}.x-eksbuild.y"
        text = f"found {proxy!r}; allowed is {allowed}: kube-proxy is of the cluster's minor version"
        yield Problem(f"{key}.kube-proxy", text, (VERSION,))
