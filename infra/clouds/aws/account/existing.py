"""Checks of what the stack's file names and does not make: a VPC, subnets, file systems, keys, reservations. It must exist."""

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

from infra.account.records import Finding, fail, ok, warn
from infra.clouds.aws.account.calls import Refused
from infra.clouds.aws.account.look import Look, absent

FREE_ADDRESSES = 32  # a machine takes about ten at once, for itself and its pods
AWS_DISKS_KEY = "alias/aws/ebs"


def network(look: Look) -> Iterator[Finding]:
    """An existing VPC with its subnets, or room for an own one."""
    named = look.settings.network
    if named.vpc_id is None:
        yield from _overlaps(look)
        return
    found = _find(look, "ec2", "describe_vpcs", VpcIds=[named.vpc_id])
    if found is None:
        yield fail(f"there is no VPC {named.vpc_id} in {look.settings.region}", "change network.vpcId")
        return
    for attribute, key in (("enableDnsSupport", "EnableDnsSupport"), ("enableDnsHostnames", "EnableDnsHostnames")):
        if not look.calls("ec2", "describe_vpc_attribute", VpcId=named.vpc_id, Attribute=attribute)[key]["Value"]:
            turn_on = f"aws ec2 modify-vpc-attribute --vpc-id {named.vpc_id} --{_dashed(attribute)}"
            yield fail(f"VPC {named.vpc_id} has {attribute} off: machines would not find the cluster or EFS", turn_on)
    for kind, subnets in (("privateSubnets", named.private_subnets), ("publicSubnets", named.public_subnets)):
        for zone, subnet in subnets.items():
            yield _subnet(look, f"network.{kind}.{zone}", zone, subnet)


def _subnet(look: Look, key: str, zone: str, subnet: str) -> Finding:
    found = _find(look, "ec2", "describe_subnets", SubnetIds=[subnet])
    if found is None:
        return fail(f"{key}: there is no subnet {subnet} in {look.settings.region}")
    one = found["Subnets"][0]
    if one["AvailabilityZone"] != zone:
        return fail(f"{key}: subnet {subnet} is in {one['AvailabilityZone']}")
    if one["VpcId"] != look.settings.network.vpc_id:
        return fail(f"{key}: subnet {subnet} is in VPC {one['VpcId']}")
    free = one["AvailableIpAddressCount"]
    if free < FREE_ADDRESSES:
        return warn(f"{key}: subnet {subnet} has {free} free addresses; a machine takes about ten")
    return ok(f"{key}: subnet {subnet}, {free} free addresses")


def _overlaps(look: Look) -> Iterator[Finding]:
    own = ip_network(look.settings.network.cidr)
    for one in look.calls.all("ec2", "describe_vpcs", "Vpcs"):
        if not look.is_ours(one.get("Tags")) and own.overlaps(ip_network(one["CidrBlock"])):
            said = f"network.cidr {own} overlaps with VPC {one['VpcId']} ({one['CidrBlock']}): the two can never be connected"
            yield warn(said, "take another range, if they ever shall be")
            return
    yield ok(f"network.cidr {own} overlaps with no VPC in {look.settings.region}")


def file_systems(look: Look) -> Iterator[Finding]:
    """The EFS file system that is taken over, and the bucket of FSx."""
    efs, fsx = look.settings.storage.efs, look.settings.storage.fsx
    if efs is not None and efs.file_system_id is not None:
        yield from _efs(look, efs.file_system_id)
    if fsx is not None and fsx.bucket is not None:
        yield _bucket(look, fsx.bucket.removeprefix("s3://").partition("/")[0])


def _efs(look: Look, number: str) -> Iterator[Finding]:
    found = _find(look, "efs", "describe_file_systems", FileSystemId=number)
    if found is None:
        yield fail(f"there is no EFS file system {number} in {look.settings.region}", "change storage.efs.fileSystemId")
        return
    one = found["FileSystems"][0]
    if one["LifeCycleState"] != "available":
        yield fail(f"EFS file system {number} is {one['LifeCycleState']}, not available")
    if not one.get("Encrypted"):
        yield warn(f"EFS file system {number} is not encrypted at rest; that can only be chosen when one is made")
    vpc = look.settings.network.vpc_id
    targets = look.calls.all("efs", "describe_mount_targets", "MountTargets", FileSystemId=number)
    elsewhere = sorted({target["VpcId"] for target in targets if target.get("VpcId") and not _may_be(look, vpc, target["VpcId"])})
    if elsewhere:
        said = f"EFS file system {number} is mounted from {', '.join(elsewhere)}: it can have mount targets in one VPC only"
        yield fail(said, "delete those mount targets, or name that VPC in network.vpcId")
    else:
        yield ok(f"EFS file system {number}: {one['SizeInBytes']['Value'] / 1e9:.1f} GB")


def _may_be(look: Look, named: str | None, vpc: str) -> bool:
    """True if a VPC is the stack's: the one that is named, or the one that it has made."""
    if named is not None:
        return vpc == named
    found = _find(look, "ec2", "describe_vpcs", VpcIds=[vpc])
    return found is not None and any(look.is_ours(one.get("Tags")) for one in found["Vpcs"])


def _bucket(look: Look, name: str) -> Finding:
    try:
        place = look.calls("s3", "get_bucket_location", Bucket=name).get("LocationConstraint")
    except Refused as error:
        if absent(error):
            return fail(f"there is no S3 bucket {name!r}", f"aws s3 mb s3://{name} --region {look.settings.region}")
        raise
    region = {None: "us-east-1", "EU": "eu-west-1"}.get(place, place)  # S3 keeps its first names of two regions
    if region != look.settings.region:
        said = f"S3 bucket {name!r} is in {region}: FSx imports and exports by itself only within its own region"
        return fail(said, f"take a bucket in {look.settings.region}, or copy it: aws s3 sync")
    return ok(f"S3 bucket {name!r} is in {region}")


def node_groups(look: Look) -> Iterator[Finding]:
    """The stack's node groups that EKS refuses to update. One becomes degraded when a machine could not be launched, for want of
    spot capacity too, and stays so until one is (https://github.com/aws/containers-roadmap/issues/2326, read 2026-11-23)."""
    if _find(look, "eks", "describe_cluster", name=look.name) is None:
        yield ok("there are no node groups yet")
        return
    names = look.calls.all("eks", "list_nodegroups", "nodegroups", clusterName=look.name)
    groups = [look.calls("eks", "describe_nodegroup", clusterName=look.name, nodegroupName=name)["nodegroup"] for name in names]
    degraded = [one for one in groups if one["status"] == "DEGRADED"]
    for one in degraded:
        why = ", ".join(sorted({issue["code"] for issue in one.get("health", {}).get("issues", [])})) or "no reason given"
        yield warn(
            f"node group {one['nodegroupName']} is DEGRADED ({why}): machines come and go, but an `up` that changes it fails",
            "leave its line, releases, disks and tags as they are until a machine of it starts; or give the line a `name`: "
            "`up` then makes new groups in place of these",
        )
    if not degraded:
        yield ok(f"{len(groups)} node groups, none is degraded")


def others(look: Look) -> Iterator[Finding]:
    """The key of disks and that of the secrets, reservations of machines, the alarm that stops the drill."""
    yield _disks_key(look)
    key = look.settings.cluster.encryption_key_arn
    if key is not None:
        yield _key(look, key)
    for group in look.groups:
        reservation = getattr(group.settings, "capacity_reservation_id", None)
        if reservation is not None:
            yield _reservation(look, group.name, group.zone, reservation)
    drill = look.settings.drill
    if drill is not None and drill.stop_alarm_arn is not None:
        alarm = drill.stop_alarm_arn.rpartition(":")[2]
        there = look.calls.all("cloudwatch", "describe_alarms", "MetricAlarms", AlarmNames=[alarm])
        yield ok(f"alarm {alarm}") if there else fail(f"drill.stopAlarmArn: there is no alarm {alarm!r}", "change or remove it")


def _disks_key(look: Look) -> Finding:
    """All disks are encrypted, with the account's default key. One of its own has to let Auto Scaling and the EBS driver use it
    (https://docs.aws.amazon.com/autoscaling/ec2/userguide/key-policy-requirements-EBS-encryption.html, read 2026-11-21)."""
    key = str(look.calls("ec2", "get_ebs_default_kms_key_id")["KmsKeyId"])
    if key == AWS_DISKS_KEY:
        return ok("disks are encrypted with AWS's own key")
    return warn(
        f"disks are encrypted with the account's default key {key}: machines do not boot if its policy leaves out Auto Scaling",
        "let AWSServiceRoleForAutoScaling and the role of the EBS driver use it and create grants, or reset the default: "
        "aws ec2 reset-ebs-default-kms-key-id",
    )


def _key(look: Look, arn: str) -> Finding:
    found = _find(look, "kms", "describe_key", KeyId=arn)
    if found is None:
        return fail(f"there is no KMS key {arn}", "change cluster.encryptionKeyArn")
    state = found["KeyMetadata"]["KeyState"]
    return ok(f"KMS key {arn}") if state == "Enabled" else fail(f"KMS key {arn} is {state}", "enable it, or name another")


def _reservation(look: Look, group: str, zone: str, number: str) -> Finding:
    found = _find(look, "ec2", "describe_capacity_reservations", CapacityReservationIds=[number])
    if found is None:
        return fail(f"{group}: there is no capacity reservation {number}", "change aws.capacityReservationId")
    one = found["CapacityReservations"][0]
    if one["AvailabilityZone"] != zone:
        return fail(
            f"{group}: reservation {number} is in {one['AvailabilityZone']}, the group in {zone}", "change the group's zones"
        )
    said = f"{group}: reservation {number}, {one['TotalInstanceCount']} x {one['InstanceType']}, {one['State']}"
    return ok(said) if one["State"] in ("active", "scheduled") else fail(said)


def _find(look: Look, service: str, operation: str, /, **arguments: Any) -> dict[str, Any] | None:
    """The answer, or None when AWS says that there is no such thing."""
    try:
        return look.calls(service, operation, **arguments)
    except Refused as error:
        if absent(error):
            return None
        raise


def _dashed(attribute: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in attribute)
