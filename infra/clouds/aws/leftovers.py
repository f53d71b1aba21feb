"""Leftovers of a stack on AWS: things that AWS, Kubernetes or somebody made, and those that destroy keeps on purpose.

The searches below ask each service; a last one asks for everything with the stack's tag, for kinds that no search knows. A thing
counts by a tag (ebb.dev/stack, or the cluster's name in a tag of EKS or Kubernetes) or by a name that begins with ebb-<stack>.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from infra.account.leftovers import search
from infra.account.records import HOURS_PER_MONTH, Left, Seen
from infra.clouds.aws import costs
from infra.clouds.aws.account import left_in_ec2
from infra.clouds.aws.account.calls import Account, Calls, Refused
from infra.clouds.aws.account.look import STACK_TAG, absent, tag
from infra.config import Stack

BALANCER_HOUR = 0.0225  # https://aws.amazon.com/elasticloadbalancing/pricing/, as of 2026-11


def clusters(calls: Calls, stack: str) -> Iterator[Left]:
    try:
        found = calls("eks", "describe_cluster", name=f"ebb-{stack}")["cluster"]
    except Refused as error:
        if absent(error):
            return
        raise
    yield Left(
        kind="cluster",
        name=f"ebb-{stack}",
        note=f"{found['status'].lower()}: the stack is up, or its destroy has not ended",
        usd_per_month=costs.EKS_HOUR * HOURS_PER_MONTH,
        remove=f"pulumi destroy -s {stack}",
    )


def scaling_groups(calls: Calls, stack: str) -> Iterator[Left]:
    filters = [{"Name": "tag:eks:cluster-name", "Values": [f"ebb-{stack}"]}]
    for one in calls.all("autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", Filters=filters):
        name = one["AutoScalingGroupName"]
        remove = f"aws autoscaling delete-auto-scaling-group --force-delete --auto-scaling-group-name {name}"
        yield Left(kind="Auto Scaling group", name=name, note=f"{len(one['Instances'])} machines", remove=remove)


def load_balancers(calls: Calls, stack: str) -> Iterator[Left]:
    """Those that Kubernetes has made for a Service; their tags are asked for twenty at a time, as AWS allows."""
    month = BALANCER_HOUR * HOURS_PER_MONTH
    newer = {one["LoadBalancerArn"]: one for one in calls.all("elbv2", "describe_load_balancers", "LoadBalancers")}
    for some in _batches(list(newer)):
        for one in calls("elbv2", "describe_tags", ResourceArns=some)["TagDescriptions"]:
            if _of_stack(one.get("Tags"), stack):
                arn = one["ResourceArn"]
                remove = f"aws elbv2 delete-load-balancer --load-balancer-arn {arn}"
                yield Left(kind="load balancer", name=newer[arn]["LoadBalancerName"], usd_per_month=month, remove=remove)
    older = [one["LoadBalancerName"] for one in calls.all("elb", "describe_load_balancers", "LoadBalancerDescriptions")]
    for some in _batches(older):
        for one in calls("elb", "describe_tags", LoadBalancerNames=some)["TagDescriptions"]:
            if _of_stack(one.get("Tags"), stack):
                name = one["LoadBalancerName"]
                remove = f"aws elb delete-load-balancer --load-balancer-name {name}"
                yield Left(kind="load balancer", name=name, usd_per_month=month, remove=remove)


def _batches(names: list[str]) -> Iterator[list[str]]:
    yield from (names[start : start + 20] for start in range(0, len(names), 20))


def _of_stack(tags: object, stack: str) -> bool:
    name = f"ebb-{stack}"
    return (
        tag(tags, STACK_TAG) == stack
        or tag(tags, "elbv2.k8s.aws/cluster") == name
        or tag(tags, f"kubernetes.io/cluster/{name}") is not None
    )


def efs(calls: Calls, stack: str) -> Iterator[Left]:
    for one in calls.all("efs", "describe_file_systems", "FileSystems"):
        if tag(one.get("Tags"), STACK_TAG) == stack and one["LifeCycleState"] not in ("deleting", "deleted"):
            number, gb = one["FileSystemId"], one["SizeInBytes"]["Value"] / 2**30
            yield Left(
                kind="EFS file system",
                name=number,
                note=f"{gb:.1f} GiB",
                usd_per_month=gb * costs.EFS_GIB_MONTH,
                remove=f"aws efs delete-file-system --file-system-id {number}  # all data in it is lost; mount targets first",
            )


def fsx(calls: Calls, stack: str) -> Iterator[Left]:
    for one in calls.all("fsx", "describe_file_systems", "FileSystems"):
        if tag(one.get("Tags"), STACK_TAG) == stack and one["Lifecycle"] != "DELETING":
            number, gib, lustre = one["FileSystemId"], one["StorageCapacity"], one["LustreConfiguration"]
            per_gib = costs.fsx_usd_per_gib(lustre["DeploymentType"], lustre.get("PerUnitStorageThroughput", 0))
            yield Left(
                kind="FSx file system",
                name=number,
                note=f"{gib} GiB",
                usd_per_month=gib * per_gib,
                remove=f"aws fsx delete-file-system --file-system-id {number}  # what its bucket does not have is lost",
            )


def repositories(calls: Calls, stack: str) -> Iterator[Left]:
    for one in calls.all("ecr", "describe_repositories", "repositories"):
        name = one["repositoryName"]
        if name.startswith(f"ebb-{stack}/"):
            remove = f"aws ecr delete-repository --force --repository-name {name}"
            yield Left(kind="ECR repository", name=name, usd_per_month=None, remove=remove)


def buckets(calls: Calls, stack: str) -> Iterator[Left]:
    """By name alone, as S3 asks for the tags of each bucket by itself."""
    for one in calls.all("s3", "list_buckets", "Buckets", Prefix=f"ebb-{stack}-sources-"):
        remove = f"aws s3 rb --force s3://{one['Name']}"
        yield Left(kind="S3 bucket", name=one["Name"], note="sources of images", remove=remove)


def projects(calls: Calls, stack: str) -> Iterator[Left]:
    for name in calls.all("codebuild", "list_projects", "projects"):
        if name == f"ebb-{stack}-images":
            yield Left(kind="CodeBuild project", name=name, remove=f"aws codebuild delete-project --name {name}")


def log_groups(calls: Calls, stack: str) -> Iterator[Left]:
    """The control plane writes its last lines after the cluster has gone: AWS then makes the group anew, without an expiry."""
    name = f"ebb-{stack}"
    wanted = (f"/aws/eks/{name}/", f"/aws/codebuild/{name}-images", f"/aws/containerinsights/{name}/", f"/{name}/pods")
    for prefix in wanted:
        for one in calls.all("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=prefix):
            group, gib = one["logGroupName"], one.get("storedBytes", 0) / 2**30
            yield Left(
                kind="log group",
                name=group,
                note=f"{gib:.2f} GiB",
                usd_per_month=gib * costs.LOG_GB_MONTH,
                remove=f"aws logs delete-log-group --log-group-name {group}",
            )


def snapshot_policies(calls: Calls, stack: str) -> Iterator[Left]:
    for one in calls.all("dlm", "get_lifecycle_policies", "Policies"):
        if tag(one.get("Tags"), STACK_TAG) == stack:
            number = one["PolicyId"]
            remove = f"aws dlm delete-lifecycle-policy --policy-id {number}"
            yield Left(kind="snapshot policy", name=number, note=one.get("Description", ""), remove=remove)


def drills(calls: Calls, stack: str) -> Iterator[Left]:
    for one in calls.all("fis", "list_experiment_templates", "experimentTemplates"):
        if tag(one.get("tags"), STACK_TAG) == stack:
            yield Left(kind="FIS template", name=one["id"], remove=f"aws fis delete-experiment-template --id {one['id']}")


def roles(calls: Calls, stack: str) -> Iterator[Left]:
    """By name, and by tag where the name leaves it open: ebb-a-b-drill may be of stack a, or of a-b."""
    pattern = re.compile(rf"ebb-{re.escape(stack)}(-.*)?")
    for one in calls.all("iam", "list_roles", "Roles"):
        name = one["RoleName"]
        if not pattern.fullmatch(name):
            continue
        owner = tag(calls.all("iam", "list_role_tags", "Tags", RoleName=name), STACK_TAG)
        if owner in (stack, None):
            remove = f"aws iam delete-role --role-name {name}  # its policies first"
            yield Left(kind="role", name=name, note="" if owner else "by its name; it has no tag", remove=remove)


def mark_kept(one: Left, stack: Stack) -> Left:
    """With the reason why destroy leaves it, if it does so on purpose."""
    if one.kind == "EFS file system" and stack.settings.storage.data == "keep":
        reason = "aws.storage.data is `keep`; name it in aws.storage.efs.fileSystemId and the next `up` takes it again"
        return replace(one, kept=reason)
    return one


Search = Callable[[Calls, str], Iterable[Left]]
# In the order in which the commands that remove things work: what uses a thing goes before it.
SEARCHES: dict[str, Search] = {
    "clusters": clusters,
    "Auto Scaling groups": scaling_groups,
    **{kind.what: partial(left_in_ec2.search, kind) for kind in left_in_ec2.MACHINES},
    "load balancers": load_balancers,
    "EFS": efs,
    "FSx": fsx,
    **{kind.what: partial(left_in_ec2.search, kind) for kind in left_in_ec2.NETWORK},
    "ECR": repositories,
    "buckets": buckets,
    "builds": projects,
    "log groups": log_groups,
    "snapshot policies": snapshot_policies,
    "drills": drills,
    "roles": roles,
}
# Types in ARNs (service:type) of which a search above says whether they are there: the tag index lags behind by hours.
SEARCHED = frozenset({
    "eks:cluster", "eks:nodegroup", "eks:addon", "eks:access-entry", "eks:podidentityassociation", "autoscaling:autoScalingGroup",
    "elasticloadbalancing:loadbalancer", "elasticfilesystem:file-system", "elasticfilesystem:access-point", "fsx:file-system",
    "fsx:association", "ecr:repository", "s3:", "codebuild:project", "logs:log-group", "dlm:policy", "fis:experiment-template",
    "iam:role",
    *(f"ec2:{kind.arn}" for kind in (*left_in_ec2.MACHINES, *left_in_ec2.NETWORK)),
    # They cost nothing and go with their VPC, or cannot be there without it.
    "ec2:subnet", "ec2:route-table", "ec2:internet-gateway", "ec2:security-group-rule", "ec2:network-acl", "ec2:dhcp-options",
})  # fmt: skip


def seen(stack_name: str, stack: Stack, say: Callable[[str], None], calls: Calls | None = None) -> Seen:
    """Everything, with progress. Raises CannotLook."""
    calls = calls or Account(stack.settings.region)
    caller = calls("sts", "get_caller_identity")
    say(f"searching for ebb-{stack_name} in {stack.settings.region} of account {caller['Account']}")
    searches = {what: partial(one, calls, stack_name) for what, one in (*SEARCHES.items(), ("the stack's tag", tagged))}
    found = search(searches, say)
    return replace(found, things=tuple(mark_kept(one, stack) for one in found.things))


def tagged(calls: Calls, stack_name: str) -> Iterator[Left]:
    """Things with the stack's tag, of a kind that no search knows."""
    filters = [{"Key": STACK_TAG, "Values": [stack_name]}]
    for one in calls.all("resourcegroupstaggingapi", "get_resources", "ResourceTagMappingList", TagFilters=filters):
        arn = one["ResourceARN"]
        if kind_of(arn) not in SEARCHED:
            yield Left(kind=kind_of(arn), name=arn, note="by its tag; may be gone already", usd_per_month=None)


def kind_of(arn: str) -> str:
    """arn:aws:ec2:us-west-2:1:subnet/subnet-1 -> ec2:subnet"""
    service, _, _, resource = arn.split(":", 5)[2:]
    for mark in ("/", ":"):
        resource = resource.split(mark, 1)[0] if mark in resource else resource
    return f"{service}:" if service == "s3" else f"{service}:{resource}"
