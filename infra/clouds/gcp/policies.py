"""Rules of the policy pack for Google Cloud: infra/policies/rules.py says what a rule is.

There is none of encryption: Google encrypts everything that it stores, and has no setting to turn that off.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from infra.clouds.gcp.settings import Settings
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
    refused,
    required,
)

LABELS = ("ebb-project", "ebb-stack")
EVERYBODY = ("allUsers", "allAuthenticatedUsers")
BASIC = ("roles/owner", "roles/editor", "roles/viewer")  # of everything in a project
# GKE makes networks for GPUDirect by its own agent, which Google has made.
AGENT = "container-engine-robot.iam.gserviceaccount.com"


def _settings(stack: Stack) -> Settings:
    assert isinstance(stack.settings, Settings), "a stack of another cloud"
    return stack.settings


def _endpoint(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    wanted = _settings(stack).cluster
    closed = declaration.get("privateClusterConfig.enablePrivateEndpoint", False)
    if closed not in (True, UNKNOWN) and wanted.endpoint != "public":
        fix = "set it to true, or say so in the stack's file: gcp.cluster.endpoint: public"
        yield Violation(property="privateClusterConfig.enablePrivateEndpoint", found=False, allowed="true", fix=fix)
    path = "masterAuthorizedNetworksConfig"
    if declaration.get(path) is None:
        yield Violation(property=path, found=None, allowed="a list of ranges", fix="without it the whole internet may connect")
    ranges = [declaration.get(f"{one}.cidrBlock") for one in declaration.each(f"{path}.cidrBlocks")]
    if not set(ranges) <= set(wanted.authorized_cidrs) - ANYWHERE:
        yield Violation(
            property=f"{path}.cidrBlocks", found=ranges, allowed="those of gcp.cluster.authorizedCidrs, and never 0.0.0.0/0",
            fix="list the addresses of the office and of CI there",
        )  # fmt: skip
    yield from required(
        declaration, {f"{path}.gcpPublicCidrsAccessEnabled": False}, "or every machine that anybody rents from Google may connect"
    )
    yield from refused(
        declaration,
        {"controlPlaneEndpointsConfig.dnsEndpointConfig.allowExternalTraffic": True},
        "that endpoint asks no range of addresses",
    )


def _machines(declaration: Declaration, stack: Stack) -> Iterable[Violation]:
    return required(
        declaration,
        {"privateClusterConfig.enablePrivateNodes": True},
        "machines reach out by Cloud NAT and need no public address",
    )


def _reached(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    fix = "list who connects: gcp.storage.clients has who mounts the data"
    yield from from_anywhere("sourceRanges", declaration.get("sourceRanges"), "private ranges", fix)
    path = "fileShares.nfsExportOptions"
    for one in declaration.each(path):
        yield from from_anywhere(f"{one}.ipRanges", declaration.get(f"{one}.ipRanges"), "private ranges", fix)
    # Of an existing network the stack does not know the ranges; there its firewall decides.
    if declaration.get("fileShares") is not None and not declaration.get(path) and not _settings(stack).network.name:
        yield Violation(property=path, found=None, allowed="a list of private ranges", fix=fix)


def _bucket(declaration: Declaration, stack: Stack) -> Iterable[Violation]:
    return required(
        declaration,
        {"publicAccessPrevention": "enforced", "uniformBucketLevelAccess": True},
        "set it: who shall read the bucket gets a role",
    )


def _metadata(declaration: Declaration, stack: Stack) -> Iterable[Violation]:
    return required(
        declaration,
        {"nodeConfig.workloadMetadataConfig.mode": "GKE_METADATA", "nodeConfig.metadata.disable-legacy-endpoints": "true"},
        "set it, or a job's program could act as its machine",
    )


def _labelled(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    """The provider labels what the stack makes; machines of a pool are labelled by the pool alone."""
    default = plain(declaration.provider.get("defaultLabels"))
    fix = "make it with the stack's provider (Part.child)"
    yield from missing_tags("the provider's defaultLabels", default, LABELS, fix)
    if declaration.type.endswith(":NodePool"):
        path = "nodeConfig.resourceLabels"
        yield from missing_tags(path, declaration.get(path), LABELS, "give the stack's labels to pools.declare()")


def _rights(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    role, member = str(declaration.get("role")), declaration.get("member")
    if member in EVERYBODY or set(_list(declaration.get("members"))) & set(EVERYBODY):
        found = member or declaration.get("members")
        yield Violation(property="member", found=found, allowed="an account, a group or a person", fix="name who it is")
    if role in BASIC:
        yield Violation(
            property="role", found=role, allowed="a role of one service", fix="give the role that names what the account does"
        )
    known = member == UNKNOWN or str(member) in _settings(stack).cluster.administrators or str(member).endswith(AGENT)
    if role.lower().endswith("admin") and not known:
        yield Violation(
            property="role", found=role, allowed="an administrator's role for gcp.cluster.administrators alone",
            fix="give the account a role that reads or writes and administers nothing, or list the person there",
        )  # fmt: skip


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _protect_data(declaration: Declaration, stack: Stack) -> Iterator[Violation]:
    settings = _settings(stack)
    if declaration.type.endswith("filestore/instance:Instance"):
        fix = "give it the options that infra/clouds/gcp/storage.py makes of storage.data, or say `data: delete`"
        yield from data_kept(declaration, settings.storage.data, fix)
    elif declaration.type.endswith(":Cluster"):
        fix = "Google refuses the deletion then, as gcp.cluster.deletionProtection asks"
        yield from required(declaration, {"deletionProtection": settings.cluster.deletion_protection}, fix)
    else:
        path = "snapshotSchedulePolicy.retentionPolicy.onSourceDiskDelete"
        fix = "or a removed stack leaves snapshots for ever"
        if declaration.get("snapshotSchedulePolicy") is not None:
            yield from required(declaration, {path: "APPLY_RETENTION_POLICY"}, fix)


_CLUSTER = "gcp:container/cluster:Cluster"
RULES: tuple[Rule, ...] = (
    Rule(
        name="gcp-public-endpoint",
        title="The API server is reached from the ranges that the stack names",
        types=(_CLUSTER,),
        check=_endpoint,
    ),
    Rule(name="gcp-public-address", title="No machine has a public address", types=(_CLUSTER,), check=_machines),
    Rule(
        name="gcp-open-port",
        title="No port is open to the internet",
        types=("gcp:compute/firewall:*", "gcp:filestore/instance:*"),
        check=_reached,
    ),
    Rule(name="gcp-public-bucket", title="No bucket can be made public", types=("gcp:storage/bucket:*",), check=_bucket),
    Rule(
        name="gcp-metadata",
        title="Pods get no credentials of their machine",
        types=("gcp:container/nodePool:*",),
        check=_metadata,
    ),
    Rule(name="gcp-labels", title="Everything says which stack it is of", types=("gcp:*",), check=_labelled),
    Rule(
        name="gcp-no-wildcard",
        title="Roles are of one service and of somebody",
        types=("gcp:*IAMMember", "gcp:*IamMember", "gcp:*IAMBinding", "gcp:*IamBinding"),
        check=_rights,
    ),
    Rule(
        name="gcp-data-kept",
        title="A destroy leaves the data as the stack says",
        types=("gcp:filestore/instance:*", _CLUSTER, "gcp:compute/resourcePolicy:*"),
        check=_protect_data,
    ),
)
