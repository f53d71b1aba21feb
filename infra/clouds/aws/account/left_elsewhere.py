"""Searches for what a stack may have left outside EC2, service by service, and which of it was kept on purpose."""

import re
from collections.abc import Iterator
from dataclasses import replace

from infra.account.costs import HOURS_PER_MONTH
from infra.account.leftovers import Left
from infra.clouds.aws import costs
from infra.clouds.aws.account.calls import Calls, Refused
from infra.clouds.aws.account.look import STACK_TAG, absent, tag
from infra.config import Stack

LOG_GIB_MONTH = 0.03  # kept: https://aws.amazon.com/cloudwatch/pricing/, as of 2026-11
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
    wanted = (f"/aws/eks/{name}/", f"/aws/codebuild/{name}-images", f"/aws/containerinsights/{name}/")
    for prefix in wanted:
        for one in calls.all("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=prefix):
            group, gib = one["logGroupName"], one.get("storedBytes", 0) / 2**30
            yield Left(
                kind="log group",
                name=group,
                note=f"{gib:.2f} GiB",
                usd_per_month=gib * LOG_GIB_MONTH,
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
