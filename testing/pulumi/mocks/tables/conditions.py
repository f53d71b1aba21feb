"""Replacements that hang on values: what terraform-provider-aws decides in its CustomizeDiff functions, for a row's `sometimes`.

Each takes the old and the new inputs and names the properties that replace the resource this once. Source: "tf" of
tables/aws.py; the function read is named beside each. Where the provider compares with a value that AWS filled in by itself,
these see that nothing was given: they say nothing then, and may miss a replacement.
"""

from collections.abc import Mapping
from typing import Any

from testing.pulumi.mocks.kind import ACCOUNT

Inputs = Mapping[str, Any]
_SOURCES = ("cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId")


def vpc(old: Inputs, new: Inputs) -> tuple[str, ...]:
    """Tenancy can be given up in place and not taken (tf, resourceVPCCustomizeDiff)."""
    before, after = (one.get("instanceTenancy", "default") for one in (old, new))
    return ("instanceTenancy",) if before != after and (before, after) != ("dedicated", "default") else ()


def subnet(old: Inputs, new: Inputs) -> tuple[str, ...]:
    """A block that addresses were given from cannot be exchanged (tf, resourceSubnet: ForceNewIf)."""
    return ("ipv6CidrBlock",) if old.get("assignIpv6AddressOnCreation") and _changed(old, new, "ipv6CidrBlock") else ()


def nat_gateway(old: Inputs, new: Inputs) -> tuple[str, ...]:
    """A private gateway cannot change its number of addresses (tf, resourceNATGatewayCustomizeDiff)."""
    count = "secondaryPrivateIpAddressCount"
    return (count,) if new.get("connectivityType") == "private" and _changed(old, new, count) else ()


def endpoint(old: Inputs, new: Inputs) -> tuple[str, ...]:
    """Only endpoints of network interfaces change it in place (tf, resourceVPCEndpoint: CustomizeDiff)."""
    switched = bool(new.get("privateDnsEnabled", old.get("privateDnsEnabled"))) != bool(old.get("privateDnsEnabled"))
    return ("privateDnsEnabled",) if switched and new.get("vpcEndpointType", "Gateway") != "Interface" else ()


def group_rule(old: Inputs, new: Inputs) -> tuple[str, ...]:
    """Another kind of source or target is another rule (tf, securityGroupRuleResource.ModifyPlan)."""
    kinds = [next((name for name in _SOURCES if one.get(name) is not None), "") for one in (old, new)]
    return tuple(kinds) if kinds[0] != kinds[1] else ()


def cluster(old: Inputs, new: Inputs) -> tuple[str, ...]:
    """tf, resourceCluster: ForceNewIfChange; validateAutoModeComputeConfigCustomizeDiff."""
    encryption = ("encryptionConfig",) if old.get("encryptionConfig") and not new.get("encryptionConfig") else ()
    egress = [_inner(one, "vpcConfig.controlPlaneEgressMode") for one in (old, new)]
    back = ("vpcConfig",) if egress == ["CUSTOMER_ROUTED", "AWS_MANAGED"] else ()
    return encryption + back + (("computeConfig",) if _other_node_role(old, new) else ())


def _other_node_role(old: Inputs, new: Inputs) -> bool:
    """Automatic nodes keep their role. It may be taken away with them: when they are off, or no pool is left."""
    before, after = (_inner(one, "computeConfig.nodeRoleArn") for one in (old, new))
    left = _inner(new, "computeConfig.enabled") and _inner(new, "computeConfig.nodePools")
    return bool(before and new.get("computeConfig") and before != after and (after or left))


def node_group(old: Inputs, new: Inputs) -> tuple[str, ...]:
    """A template where there was none: its id and name are ForceNew, the block itself is not (tf, resourceNodeGroup)."""
    return ("launchTemplate",) if new.get("launchTemplate") and not old.get("launchTemplate") else ()


def lustre(old: Inputs, new: Inputs) -> tuple[str, ...]:
    """Sizes that grow in place and never shrink; a file system of the first kind does not even grow.

    tf, resourceLustreFileSystem...CustomizeDiff: StorageCapacity, TypeVersion, MetadataConfig.
    """
    size = [_number(one.get("storageCapacity")) for one in (old, new)]
    fixed = new.get("deploymentType", "SCRATCH_1") == "SCRATCH_1" and None not in size and size[0] != size[1]
    shrunk = ("storageCapacity",) if _less(*size) or fixed else ()
    versions = [_version(one.get("fileSystemTypeVersion")) for one in (old, new)]
    older = ("fileSystemTypeVersion",) if _less(*versions) else ()
    given = _inner(new, "metadataConfiguration.mode") == "USER_PROVISIONED"
    iops = [_number(_inner(one, "metadataConfiguration.iops")) for one in (old, new)]
    return shrunk + older + (("metadataConfiguration",) if given and _less(*iops) else ())


def snapshot_policy(old: Inputs, new: Inputs) -> tuple[str, ...]:
    """Another schedule that says whether it copies tags: copy_tags is ForceNew, the list is not (tf, resourceLifecyclePolicy)."""
    before, after = (_inner(one, "policyDetails.schedules") or [] for one in (old, new))
    return ("policyDetails",) if any("copyTags" in one for one in after[len(before) :]) else ()


def bucket_owner(old: Inputs, new: Inputs) -> tuple[str, ...]:
    """The account itself may be named afterwards (tf, resourceBucketVersioning and -ServerSideEncryptionConfiguration)."""
    before, after = (one.get("expectedBucketOwner", "") for one in (old, new))
    return ("expectedBucketOwner",) if before != after and (before, after) != ("", ACCOUNT) else ()


def _changed(old: Inputs, new: Inputs, name: str) -> bool:
    """Given now, and not so before. Taken away it stays as it was: the provider has these as Optional and Computed."""
    return new.get(name) is not None and new[name] != old.get(name)


def _inner(inputs: Inputs, path: str) -> Any:
    found: Any = inputs
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _number(value: object) -> tuple[int, ...] | None:
    """None for what a preview does not know."""
    return (int(str(value)),) if str(value).isdigit() else None


def _version(value: object) -> tuple[int, ...] | None:
    parts = str(value).split(".")
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else None


def _less(before: tuple[int, ...] | None, after: tuple[int, ...] | None) -> bool:
    return before is not None and after is not None and after < before
