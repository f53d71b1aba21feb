"""The checks of `python -m infra.account.preflight` for a stack on AWS: who asks, from where, and whether names are free.

In account/: quotas.py, machines and versions in offers.py, things that must exist in existing.py. Everything is read only.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from infra.account import preflight
from infra.account.preflight import programs
from infra.account.records import Check, Finding, fail, ok, warn
from infra.clouds.aws.account import existing, offers, quotas
from infra.clouds.aws.account.calls import Account, Refused
from infra.clouds.aws.account.look import Look, absent
from infra.config import Stack
from workloads.cluster import SPOT

SPOT_ROLE = "AWSServiceRoleForEC2Spot"
MAKE_SPOT_ROLE = "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
# Program -> what needs it.
TOOLS = {"pulumi": "it runs the stack", "aws": "pulumi_eks and kubeconfigs get tokens of the cluster by `aws eks get-token`"}


def identity(look: Look) -> Iterator[Finding]:
    caller = look.calls("sts", "get_caller_identity")
    wanted = look.settings.account_id
    said = f"{caller['Arn']} in account {caller['Account']}"
    if wanted is not None and caller["Account"] != wanted:
        yield fail(f"{said}, but aws.accountId is {wanted}: `up` would refuse", "take other credentials (AWS_PROFILE)")
    elif wanted is None:
        yield warn(said, f"set aws.accountId: {caller['Account']}, so that `up` never runs in another account")
    else:
        yield ok(said)


def region(look: Look) -> Iterator[Finding]:
    name = look.settings.region
    found = look.calls("ec2", "describe_regions", AllRegions=True)["Regions"]
    status = {one["RegionName"]: one["OptInStatus"] for one in found}.get(name)
    if status is None:
        yield fail(f"AWS has no region {name!r}", "change aws.region")
    elif status == "not-opted-in":
        yield fail(f"region {name} is off in this account", f"aws account enable-region --region-name {name}")
    else:
        yield ok(f"region {name} is on")


def tools(look: Look) -> Iterator[Finding]:
    docker = {"docker": "images.build: docker builds here; `codebuild` needs no Docker"}
    yield from programs(look, {**TOOLS, **(docker if look.settings.images.build == "docker" else {})})
    if not look.which("kubectl"):
        yield warn("kubectl is not on PATH: neither `up` nor `ebb` needs it, but you need it to inspect the cluster")


def spot_role(look: Look) -> Iterator[Finding]:
    """EC2 makes no spot machine without it. Auto Scaling creates it with the account's first one: its own service-linked role
    may (AutoScalingServiceRolePolicy, statement EC2SpotManagement; read 2026-11-23). Karpenter's may not
    (https://karpenter.sh/docs/troubleshooting/#missing-service-linked-role)."""
    if not any(group.capacity_type == SPOT for group in look.groups):
        yield ok("no group asks for spot machines")
    elif _has_role(look, SPOT_ROLE):
        yield ok(f"{SPOT_ROLE} is there")
    elif look.settings.autoscaler.kind == "karpenter":
        yield fail(f"{SPOT_ROLE} is not there, and Karpenter may not create it", MAKE_SPOT_ROLE)
    else:
        yield warn(f"{SPOT_ROLE} is not there: Auto Scaling creates it with the first spot machine, if it may", MAKE_SPOT_ROLE)


def _has_role(look: Look, name: str) -> bool:
    try:
        look.calls("iam", "get_role", RoleName=name)
    except Refused as error:
        if absent(error):
            return False
        raise
    return True


def names(look: Look) -> Iterator[Finding]:
    """Things that the stack would make under a fixed name, and somebody has made already."""
    clashes = [*_cluster(look), *_log_groups(look), *_repositories(look)]
    yield from clashes or [
        ok(f"cluster {look.name}, its log groups and its repositories: the names are free, or the stack's own")
    ]


def _cluster(look: Look) -> Iterator[Finding]:
    found = _answer(look, "describe_cluster", name=look.name)
    if found is not None and not look.is_ours(found["cluster"].get("tags", {})):
        yield fail(f"there is a cluster {look.name} that no stack of Ebb has made", "choose another name: pulumi stack init NAME")


def administrators(look: Look) -> Iterator[Finding]:
    """EKS gives who creates the cluster an access entry, and refuses a second one; pulumi_eks cannot turn that off
    (https://github.com/pulumi/pulumi-eks/issues/2373, read 2026-11-21)."""
    listed_ones = look.settings.cluster.administrators
    caller = look.calls("sts", "get_caller_identity")["Arn"]
    there = _answer(look, "describe_cluster", name=look.name) is not None
    taken = [one for one in listed_ones if (_has_entry(look, one) if there else _same(one, caller))]
    if taken:
        said = "is an administrator by creating the cluster; a second access entry for it makes `up` fail"
        yield fail(f"{taken[0]} {said}", "take it out of aws.cluster.administrators")
    else:
        yield ok(f"{len(listed_ones)} administrators beside who creates the cluster")


def _has_entry(look: Look, principal: str) -> bool:
    """True if it has an entry that the stack has not made."""
    found = _answer(look, "describe_access_entry", clusterName=look.name, principalArn=principal)
    return found is not None and not look.is_ours(found["accessEntry"].get("tags"))


def _answer(look: Look, operation: str, **arguments: str) -> dict[str, Any] | None:
    """Of EKS; None where there is no such thing."""
    try:
        return look.calls("eks", operation, **arguments)
    except Refused as error:
        if absent(error):
            return None
        raise


def _same(principal: str, caller: str) -> bool:
    """True if a caller is that IAM user or a session of that role: arn:aws:sts::ACCOUNT:assumed-role/NAME/SESSION has no path."""
    account, what = caller.split(":")[4:6]
    kind, _, rest = what.partition("/")
    mine = f"role/{rest.partition('/')[0]}" if kind == "assumed-role" else what
    theirs_account, theirs = principal.split(":")[4:6]
    if kind == "assumed-role":
        theirs = f"{theirs.partition('/')[0]}/{theirs.rpartition('/')[2]}"
    return (account, mine) == (theirs_account, theirs)


def _log_groups(look: Look) -> Iterator[Finding]:
    wanted = {f"/aws/eks/{look.name}/cluster", f"/aws/codebuild/{look.name}-images"}
    wanted |= {f"/{look.name}/pods"} if look.stack.logs.ship else set()
    for name in sorted(wanted):
        for one in look.calls.all("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=name):
            if one["logGroupName"] == name:  # not one that only begins so
                tags = look.calls("logs", "list_tags_for_resource", resourceArn=one["logGroupArn"]).get("tags", {})
                if not look.is_ours(tags):
                    yield fail(f"there is a log group {name} already", f"aws logs delete-log-group --log-group-name {name}")


def _repositories(look: Look) -> Iterator[Finding]:
    if look.settings.images.build == "none":
        return
    for one in look.calls.all("ecr", "describe_repositories", "repositories"):
        if one["repositoryName"] in {f"{look.name}/controller", f"{look.name}/trainer"}:
            tags = look.calls("ecr", "list_tags_for_resource", resourceArn=one["repositoryArn"])["tags"]
            if not look.is_ours(tags):
                name = one["repositoryName"]
                remove = f"aws ecr delete-repository --force --repository-name {name}"
                yield fail(f"there is a repository {name} already", remove)


def reach(look: Look) -> Iterator[Finding]:
    cluster = look.settings.cluster
    if cluster.endpoint == "private":
        yield warn("the endpoint is private and aws.cluster.upReachesVpc says that this machine is in the VPC: not checked")
    else:
        yield from preflight.reach(look, "aws.cluster.publicAccessCidrs", cluster.public_access_cidrs)


# Those first without which the others cannot be made.
CHECKS: dict[str, Callable[[Look], Iterable[Finding]]] = {
    "credentials and account": identity,
    "region": region,
    "zones": offers.zones,
    "programs on this machine": tools,
    "quotas of machines (vCPUs)": quotas.machines,
    "quotas of the network": quotas.network,
    "quota of image builds": quotas.builds,
    "machines in their zones": offers.offerings,
    "the catalog's facts": offers.facts,
    "Kubernetes": offers.kubernetes,
    "add-ons": offers.add_ons,
    "AMI releases": offers.releases,
    "spot's service-linked role": spot_role,
    "names": names,
    "node groups": existing.node_groups,
    "administrators": administrators,
    "network": existing.network,
    "file systems": existing.file_systems,
    "keys, reservations, alarms": existing.others,
    "the way to the cluster": reach,
}


def checks(stack_name: str, stack: Stack) -> list[Check]:
    """All checks."""
    return preflight.checks(CHECKS, Look(stack_name=stack_name, stack=stack, calls=Account(stack.settings.region)))
