"""Searches for what a stack may have left in EC2: a table, as EC2 asks and answers for all of its kinds in the same way."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.account.records import HOURS_PER_MONTH, Left
from infra.clouds.aws import costs
from infra.clouds.aws.account.calls import Calls
from infra.clouds.aws.account.look import STACK_TAG, tag

BACKUP_TAG = "ebb.dev/backup"
SNAPSHOT_GIB_MONTH = 0.05  # https://aws.amazon.com/ebs/pricing/, as of 2026-11; of what has changed since the one before
Thing = Mapping[str, Any]
# Each stands for one request: filters of a request are joined by "and". {name}: ebb-<stack>.
OURS = {"Name": f"tag:{STACK_TAG}", "Values": ["{stack}"]}
BACKUPS = {"Name": f"tag:{BACKUP_TAG}", "Values": ["{name}"]}
OF_EKS = {"Name": "tag:aws:eks:cluster-name", "Values": ["{name}"]}
OF_THE_PLUGIN = {"Name": "tag:cluster.k8s.amazonaws.com/name", "Values": ["{name}"]}  # the VPC CNI's network interfaces
OF_KUBERNETES = {"Name": "tag-key", "Values": ["kubernetes.io/cluster/{name}"]}
OF_THE_CONTROL_PLANE = {"Name": "description", "Values": ["Amazon EKS {name}"]}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind. `arn`: its word in ARNs; `number`: the key of its id, which `remove` takes; `dead`: states of what is gone.

    `any_in_vpc`: one in the stack's own VPC is found without a tag, too, as the VPC cannot go before it. GuardDuty's runtime
    monitoring puts an endpoint and a security group there (https://github.com/hashicorp/terraform-provider-aws/issues/46747).
    """

    what: str
    arn: str
    operation: str
    key: str
    number: str
    remove: str
    filters: tuple[Mapping[str, Any], ...] = (OURS,)
    filter_argument: str = "Filters"
    arguments: Mapping[str, Any] | None = None
    state: Callable[[Thing], str] = lambda one: str(one.get("State", ""))
    dead: tuple[str, ...] = ()
    usd_per_month: Callable[[Thing], float | None] = lambda one: 0.0
    kept: str = ""
    any_in_vpc: bool = False


def _hourly(usd: float) -> Callable[[Thing], float | None]:
    return lambda one: usd * HOURS_PER_MONTH


MACHINES: tuple[Kind, ...] = (
    Kind(
        what="instances",
        arn="instance",
        operation="describe_instances",
        key="Reservations",
        number="InstanceId",
        filters=(OURS, {"Name": "tag:eks:cluster-name", "Values": ["{name}"]}, OF_EKS, OF_KUBERNETES),
        state=lambda one: str(one["State"]["Name"]),
        dead=("terminated", "shutting-down"),
        usd_per_month=lambda one: None,
        remove="aws ec2 terminate-instances --instance-ids {id}",
    ),
    Kind(
        what="volumes",
        arn="volume",
        operation="describe_volumes",
        key="Volumes",
        number="VolumeId",
        filters=(OURS, OF_KUBERNETES),
        dead=("deleting", "deleted"),
        usd_per_month=lambda one: float(one["Size"] * costs.GP3_GIB_MONTH),
        remove="aws ec2 delete-volume --volume-id {id}",
    ),
    Kind(
        what="snapshots",
        arn="snapshot",
        operation="describe_snapshots",
        key="Snapshots",
        number="SnapshotId",
        arguments={"OwnerIds": ["self"]},
        filters=(OURS, BACKUPS),
        usd_per_month=lambda one: float(one["VolumeSize"] * SNAPSHOT_GIB_MONTH),
        remove="aws ec2 delete-snapshot --snapshot-id {id}",
        kept="a backup of etcd; AWS keeps it when the policy goes that made it",
    ),
    Kind(
        what="launch templates",
        arn="launch-template",
        operation="describe_launch_templates",
        key="LaunchTemplates",
        number="LaunchTemplateId",
        filters=(OURS, OF_EKS),
        remove="aws ec2 delete-launch-template --launch-template-id {id}",
    ),
    Kind(
        what="placement groups",
        arn="placement-group",
        operation="describe_placement_groups",
        key="PlacementGroups",
        number="GroupName",
        dead=("deleting", "deleted"),
        remove="aws ec2 delete-placement-group --group-name {id}",
    ),
)
NETWORK: tuple[Kind, ...] = (
    Kind(
        what="VPC endpoints",
        arn="vpc-endpoint",
        operation="describe_vpc_endpoints",
        key="VpcEndpoints",
        number="VpcEndpointId",
        dead=("deleted", "deleting", "Deleted", "Deleting"),
        usd_per_month=lambda one: len(one.get("SubnetIds", [])) * costs.ENDPOINT_HOUR * HOURS_PER_MONTH,
        remove="aws ec2 delete-vpc-endpoints --vpc-endpoint-ids {id}",
        any_in_vpc=True,
    ),
    Kind(
        what="NAT gateways",
        arn="natgateway",
        operation="describe_nat_gateways",
        key="NatGateways",
        number="NatGatewayId",
        filter_argument="Filter",
        dead=("deleted", "deleting"),
        usd_per_month=_hourly(costs.NAT_HOUR),
        remove="aws ec2 delete-nat-gateway --nat-gateway-id {id}",
    ),
    Kind(
        what="addresses",
        arn="elastic-ip",
        operation="describe_addresses",
        key="Addresses",
        number="AllocationId",
        usd_per_month=_hourly(costs.ADDRESS_HOUR),
        remove="aws ec2 release-address --allocation-id {id}",
    ),
    Kind(
        what="network interfaces",
        arn="network-interface",
        operation="describe_network_interfaces",
        key="NetworkInterfaces",
        number="NetworkInterfaceId",
        filters=(OURS, OF_THE_PLUGIN, OF_THE_CONTROL_PLANE),
        state=lambda one: str(one.get("Status", "")),
        remove="aws ec2 delete-network-interface --network-interface-id {id}",
    ),
    Kind(
        what="security groups",
        arn="security-group",
        operation="describe_security_groups",
        key="SecurityGroups",
        number="GroupId",
        filters=(OURS, OF_EKS, OF_KUBERNETES),
        remove="aws ec2 delete-security-group --group-id {id}",
        any_in_vpc=True,
    ),
    Kind(
        what="VPCs",
        arn="vpc",
        operation="describe_vpcs",
        key="Vpcs",
        number="VpcId",
        remove="aws ec2 delete-vpc --vpc-id {id}  # its subnets, gateways and route tables first",
    ),
)


def search(kind: Kind, calls: Calls, stack_name: str) -> Iterator[Left]:
    """Those that are alive and match any of the filters, each once."""
    found: dict[str, Thing] = {}
    wanted = [_filled(one, stack_name) for one in kind.filters]
    if kind.any_in_vpc:
        vpcs = calls.all("ec2", "describe_vpcs", "Vpcs", Filters=[_filled(OURS, stack_name)])
        wanted += [{"Name": "vpc-id", "Values": [one["VpcId"] for one in vpcs]}] if vpcs else []
    for one in wanted:
        for thing in _ask(kind, calls, one):
            if thing.get("GroupName") != "default":  # the VPC's own security group goes with it
                found.setdefault(str(thing[kind.number]), thing)
    for number, thing in found.items():
        state = kind.state(thing)
        if state not in kind.dead:
            name = tag(thing.get("Tags", thing.get("TagSet")), "Name") or thing.get("ServiceName") or thing.get("GroupName")
            said = ", ".join(word for word in (name, state) if word and word != number)
            yield Left(
                kind=kind.what,
                name=number,
                note=said,
                usd_per_month=kind.usd_per_month(thing),
                remove=kind.remove.format(id=number),
                kept=kind.kept,
            )


def _ask(kind: Kind, calls: Calls, wanted: Mapping[str, Any]) -> list[Thing]:
    answer = calls.all("ec2", kind.operation, kind.key, **{kind.filter_argument: [wanted]}, **(kind.arguments or {}))
    if kind.key == "Reservations":
        return [one for reservation in answer for one in reservation["Instances"]]
    return answer


def _filled(one: Mapping[str, Any], stack_name: str) -> dict[str, Any]:
    return {
        "Name": one["Name"],
        "Values": [each.format(stack=stack_name, name=f"ebb-{stack_name}") for each in one["Values"]],
    }
