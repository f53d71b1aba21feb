"""Rules of the policy pack for AWS: infra/policies/rules.py says what a rule is.

Ebb's own roles come from iam/rights.py, whose tests are stricter; here are the documents as they are sent.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from infra.clouds.aws.machines import machine
from infra.clouds.aws.settings import Settings
from infra.config import Stack
from infra.policies.rules import (
    ANYWHERE,
    UNKNOWN,
    Declaration,
    Rule,
    Violation,
    data_kept,
    from_anywhere,
    missing_tags,
    plain,
    required,
)

TAGS = (machine.PROJECT, machine.STACK)
# Of AWS's own policies: those that allow `service:*` and more.
WIDE = ("AdministratorAccess", "PowerUserAccess", "IAMFullAccess", "FullAccess")


def _settings(stack: Stack) -> Settings:
    assert isinstance(stack.settings, Settings), "a stack of another cloud"
    return stack.settings


def _endpoint(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    """AWS's defaults are a public endpoint for the whole internet. The component has the properties itself, the cluster that it
    makes has them in `vpcConfig`."""
    wanted = _settings(stack).cluster
    at = "vpcConfig." if declaration.get("vpcConfig") is not None else ""
    if declaration.get(f"{at}endpointPublicAccess", True) is False:
        return
    if wanted.endpoint != "public":
        fix = "set it to false, or say so in the stack's file: aws.cluster.endpoint: public"
        yield Violation(property=f"{at}endpointPublicAccess", found=True, allowed="false", fix=fix)
    ranges = declaration.get(f"{at}publicAccessCidrs")
    if ranges == UNKNOWN:
        return
    if not set(ranges or ANYWHERE) <= set(wanted.public_access_cidrs) - ANYWHERE:
        yield Violation(
            property=f"{at}publicAccessCidrs", found=ranges, allowed="those of aws.cluster.publicAccessCidrs, never 0.0.0.0/0",
            fix="list the addresses of the office and of CI there",
        )  # fmt: skip


def _reached(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    """By no address on the internet. `ingress`: of a security group with rules of its own; a rule elsewhere has one range."""
    allowed, fix = "a private range, or a security group", "name who connects: storage.clients lists who mounts the data"
    if declaration.type.endswith("SecurityGroup"):
        for path in declaration.each("ingress"):
            for key in ("cidrBlocks", "ipv6CidrBlocks"):
                yield from from_anywhere(f"{path}.{key}", declaration.get(f"{path}.{key}"), allowed, fix)
    else:
        for key in ("cidrIpv4", "cidrIpv6"):
            yield from from_anywhere(key, declaration.get(key), allowed, fix)


def _address(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    """No machine has a public address: those of NAT gateways are the only ones."""
    fix = "leave machines in private subnets; they reach out by the NAT gateway"
    if declaration.type.endswith(":Subnet"):
        yield from required(declaration, {"mapPublicIpOnLaunch": False}, fix)
    elif declaration.type.endswith(":EC2NodeClass"):
        yield from required(declaration, {"spec.associatePublicIPAddress": False}, fix)
    else:
        paths = declaration.each("networkInterfaces")
        yield from required(declaration, {f"{path}.associatePublicIpAddress": False for path in paths}, fix)


def _bucket(declaration: Declaration, stack: Stack) -> Iterable[Violation]:
    keys = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    return required(declaration, dict.fromkeys(keys, True), "block it: who shall read the bucket gets a role")


def _encrypted(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    fix = "set it: a key of AWS costs nothing"
    kind = declaration.type.rpartition(":")[2]
    if kind in ("FileSystem", "Volume"):
        yield from required(declaration, {"encrypted": True}, fix)
    elif kind == "LaunchTemplate":
        yield from _disks(declaration, "blockDeviceMappings", fix)
    elif kind == "EC2NodeClass":
        yield from _disks(declaration, "spec.blockDeviceMappings", fix)
    elif kind == "Queue" and not declaration.get("kmsMasterKeyId"):
        yield from required(declaration, {"sqsManagedSseEnabled": True}, fix)
    elif kind == "BucketServerSideEncryptionConfiguration":
        at = "rules.0.applyServerSideEncryptionByDefault.sseAlgorithm"
        found = declaration.get(at)
        if found not in ("AES256", "aws:kms", "aws:kms:dsse", UNKNOWN):
            yield Violation(property=at, found=found, allowed="AES256, aws:kms or aws:kms:dsse", fix=fix)


def _disks(declaration: Declaration, path: str, fix: str) -> Iterator[Violation]:
    """Every disk of a machine; a template without one would get the AMI's, which are not encrypted."""
    listed = declaration.each(path)
    if not listed and declaration.get(path) != UNKNOWN:
        yield Violation(property=path, found=None, allowed="a list with the system disk, encrypted", fix=fix)
    yield from required(declaration, {f"{one}.ebs.encrypted": True for one in listed}, fix)


def _metadata(declaration: Declaration, stack: Stack) -> Iterable[Violation]:
    """IMDSv2 alone, and one hop: programs in pods get no credentials of their machine."""
    at = "spec.metadataOptions" if declaration.type.startswith("kubernetes:") else "metadataOptions"
    return required(
        declaration,
        {f"{at}.httpTokens": "required", f"{at}.httpPutResponseHopLimit": 1},
        "set it, or a job's program could act as its machine",
    )


def _tagged(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    """The provider tags what the stack makes; what a launch template starts is tagged by the template alone."""
    if declaration.type.endswith(":LaunchTemplate"):
        said = {declaration.get(f"{path}.resourceType"): path for path in declaration.each("tagSpecifications")}
        unknown = UNKNOWN in said or declaration.get("tagSpecifications") == UNKNOWN
        for kind in () if unknown else ("instance", "volume", "network-interface"):
            path = f"{said.get(kind, 'tagSpecifications.-')}.tags"
            fix = f"give machine.machine_tags() for {kind}"
            yield from missing_tags(path, declaration.get(path) if kind in said else None, TAGS, fix)
    elif declaration.type.endswith(":EC2NodeClass"):
        yield from missing_tags("spec.tags", declaration.get("spec.tags"), TAGS, "give machine.machine_tags()")
    default = plain(declaration.provider.get("defaultTags"))
    if declaration.type.startswith("aws:") and default != UNKNOWN:
        tags = default.get("tags") if isinstance(default, Mapping) else None
        yield from missing_tags("the provider's defaultTags.tags", tags, TAGS, "make it with the stack's provider (Part.child)")


def _wildcards(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    """Policies name each action, and allow nothing to every principal."""
    for key in ("policy", "assumeRolePolicy"):
        document = plain(declaration.get(key))
        if not isinstance(document, Mapping):
            continue
        for index, one in enumerate(_list(document.get("Statement"))):
            if one.get("Effect") == "Allow":
                yield from _statement(f"{key}.Statement.{index}", one)


def _statement(path: str, one: Mapping[str, Any]) -> Iterator[Violation]:
    fix = "list the actions in infra/clouds/aws/iam/rights.py, each with its reason"
    if any("*" in action for action in _list(one.get("Action"))):
        yield Violation(property=f"{path}.Action", found=one["Action"], allowed="actions without *", fix=fix)
    for key in ("NotAction", "NotResource", "NotPrincipal"):
        if key in one:
            yield Violation(property=f"{path}.{key}", found=one[key], allowed="a list of what is allowed", fix=fix)
    who = one.get("Principal")
    everybody = who == "*" or (isinstance(who, Mapping) and any("*" in _list(listed) for listed in who.values()))
    if everybody:
        yield Violation(property=f"{path}.Principal", found=who, allowed="a service, a role or a user", fix="name who it is")


def _attached(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    found = str(declaration.get("policyArn"))
    if found.rpartition("/")[2].endswith(WIDE):
        yield Violation(
            property="policyArn", found=found, allowed="a policy without service:*",
            fix="list the actions in infra/clouds/aws/iam/rights.py in its place",
        )  # fmt: skip


def _protect_data(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    storage = _settings(stack).storage
    fix = "give it the options that infra/clouds/aws/data/efs.py makes of storage.data, or say `data: delete` in the stack's file"
    if declaration.type.endswith(":FileSystem"):
        yield from data_kept(declaration, storage.data, fix)
    elif declaration.type.endswith(":LustreFileSystem"):
        # It is paid by its size and goes with the stack; what people keep is in the bucket, to which it exports.
        exported = storage.fsx is not None and storage.fsx.bucket is not None
        yield from data_kept(declaration, "delete" if exported and storage.data != "protect" else storage.data, fix)
    else:
        why = "without it the nightly snapshots leave the disk out"
        yield from missing_tags("tags", declaration.get("tags"), [machine.BACKED_UP], f"make it by etcd_disk(): {why}")


def _list(value: Any) -> Sequence[Any]:
    """Policies have one thing as it is, and several as a list."""
    return value if isinstance(value, list) else [] if value is None else [value]


_MACHINES = ("aws:ec2/launchTemplate:LaunchTemplate", "kubernetes:karpenter.k8s.aws/*:EC2NodeClass")
RULES: tuple[Rule, ...] = (
    Rule(
        name="aws-public-endpoint",
        title="The API server is reached from the ranges that the stack names",
        types=("eks:index:Cluster", "aws:eks/cluster:Cluster"),
        check=_endpoint,
    ),
    Rule(
        name="aws-open-port",
        title="No port is open to the internet",
        types=("aws:ec2/*SecurityGroup", "aws:vpc/securityGroupIngressRule:*"),
        check=_reached,
    ),
    Rule(
        name="aws-public-address",
        title="No machine has a public address",
        types=("aws:ec2/subnet:Subnet", *_MACHINES),
        check=_address,
    ),
    Rule(
        name="aws-public-bucket",
        title="No bucket can be made public",
        types=("aws:s3/bucketPublicAccessBlock:*",),
        check=_bucket,
    ),
    Rule(
        name="aws-encryption",
        title="What is stored is encrypted",
        types=(
            "aws:efs/fileSystem:FileSystem", "aws:ebs/volume:Volume", "aws:sqs/queue:Queue",
            "aws:s3/bucketServerSideEncryptionConfiguration:*", *_MACHINES,
        ),
        check=_encrypted,
    ),
    Rule(name="aws-imdsv2", title="Machines have IMDSv2, out of reach of pods", types=_MACHINES, check=_metadata),
    Rule(name="aws-tags", title="Everything says which stack it is of", types=("aws:*", _MACHINES[1]), check=_tagged),
    Rule(
        name="aws-no-wildcard",
        title="Policies name each action",
        types=("aws:iam/*", "aws:sqs/queuePolicy:*", "aws:s3/bucketPolicy:*"),
        check=_wildcards,
    ),
    Rule(
        name="aws-no-wide-policy",
        title="No role has one of AWS's policies for everything",
        types=("aws:iam/rolePolicyAttachment:*",),
        check=_attached,
    ),
    Rule(
        name="aws-data-kept",
        title="A destroy leaves the data as the stack says, and etcd's disk has snapshots",
        types=("aws:efs/fileSystem:FileSystem", "aws:fsx/lustreFileSystem:LustreFileSystem", "aws:ebs/volume:Volume"),
        check=_protect_data,
    ),
)  # fmt: skip
