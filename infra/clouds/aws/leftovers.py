"""Leftovers of a stack on AWS: things that AWS, Kubernetes or somebody made, and those that destroy keeps on purpose.

The searches below ask each service; a last one asks for everything with the stack's tag, for kinds that no search knows. A thing
counts by a tag (ebb.dev/stack, or the cluster's name in a tag of EKS or Kubernetes) or by a name that begins with ebb-<stack>.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from infra.account.leftovers import Left, Seen, search
from infra.clouds.aws.account import left_elsewhere, left_in_ec2
from infra.clouds.aws.account.calls import Account, Calls
from infra.clouds.aws.account.look import STACK_TAG
from infra.config import Stack

Search = Callable[[Calls, str], Iterable[Left]]
# In the order in which the commands that remove things work: what uses a thing goes before it.
SEARCHES: dict[str, Search] = {
    "clusters": left_elsewhere.clusters,
    "Auto Scaling groups": left_elsewhere.scaling_groups,
    **{kind.what: partial(left_in_ec2.search, kind) for kind in left_in_ec2.MACHINES},
    "load balancers": left_elsewhere.load_balancers,
    "EFS": left_elsewhere.efs,
    "FSx": left_elsewhere.fsx,
    **{kind.what: partial(left_in_ec2.search, kind) for kind in left_in_ec2.NETWORK},
    "ECR": left_elsewhere.repositories,
    "buckets": left_elsewhere.buckets,
    "builds": left_elsewhere.projects,
    "log groups": left_elsewhere.log_groups,
    "snapshot policies": left_elsewhere.snapshot_policies,
    "drills": left_elsewhere.drills,
    "roles": left_elsewhere.roles,
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
    return replace(found, things=tuple(left_elsewhere.mark_kept(one, stack) for one in found.things))


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
