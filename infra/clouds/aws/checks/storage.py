"""File systems: at least one, where the machines are, with values that AWS takes, and no data lost by surprise."""

from collections.abc import Iterator

from infra.clouds.aws.settings import Fsx, Settings
from infra.config import Problem, Stack
from infra.config.cidrs import malformed, network_of

STEP_GIB = (
    2400  # fsx CreateFileSystem StorageCapacity: 1200, 2400 and increments of 2400 for SCRATCH_2 and PERSISTENT_2 (botocore)
)


def problems(stack: Stack, settings: Settings) -> Iterator[Problem]:
    """What disagrees."""
    storage = settings.storage
    if storage.efs is None and storage.fsx is None:
        yield Problem(
            "aws.storage",
            "neither efs nor fsx is there: jobs need one, `efs: {}` is enough",
            ("aws.storage.efs", "aws.storage.fsx"),
        )
    for client in dict.fromkeys(storage.clients):
        if not client.startswith("sg-") and network_of(client) is None:
            yield Problem("aws.storage.clients", malformed(client))
        elif client.endswith("/0"):
            text = f"found {client!r}, everybody: name the network that researchers' machines are in"
            yield Problem("aws.storage.clients", text)
    if storage.fsx is not None:
        yield from _fsx(storage.fsx, settings)
        yield from _zone(storage.fsx, stack, settings)


def _fsx(fsx: Fsx, settings: Settings) -> Iterator[Problem]:
    if fsx.size_gib != STEP_GIB // 2 and fsx.size_gib % STEP_GIB:
        more = -(-fsx.size_gib // STEP_GIB) * STEP_GIB
        yield Problem(
            "aws.storage.fsx.sizeGiB", f"found {fsx.size_gib}; allowed are 1200, 2400 and multiples of 2400: take {more}"
        )
    if fsx.deployment == "SCRATCH_2" and "throughput" in fsx.model_fields_set:
        text = f"found {fsx.throughput}, but SCRATCH_2 has 200 MB/s per TiB and no choice: remove it, or take PERSISTENT_2"
        yield Problem("aws.storage.fsx.throughput", text, ("aws.storage.fsx.deployment",))
    if fsx.bucket is None and settings.storage.data != "delete":
        yield Problem(
            "aws.storage.fsx.bucket",
            f"missing: `pulumi destroy` deletes FSx, and with data: {settings.storage.data} nothing may be lost: name a bucket "
            "that it exports to, s3://..., or set data: delete",
            ("aws.storage.data",),
        )


def _zone(fsx: Fsx, stack: Stack, settings: Settings) -> Iterator[Problem]:
    """FSx is in one zone; reading it from another is slow and billed by the GB."""
    key = "aws.storage.fsx.zone"
    zones = sorted({zone for line in stack.node_groups for zone in line.names(stack.zones)} & set(stack.zones))
    if zones and fsx.zone not in zones:
        text = f"found {fsx.zone!r}; allowed are the zones of the node groups, {', '.join(zones)}: jobs read it from there"
        yield Problem(key, text, ("zones", "nodeGroups"))
        return
    if not zones and fsx.zone not in stack.zones:
        yield Problem(key, f"found {fsx.zone!r}; allowed are {', '.join(stack.zones)}", ("zones", "nodeGroups"))
    for index, line in enumerate(stack.node_groups if settings.storage.efs is None else ()):
        others = [zone for zone in line.names(stack.zones) if zone != fsx.zone]
        if others:
            yield Problem(
                f"nodeGroups[{index}].zones",
                f"found {', '.join(others)}, but the data is on FSx in {fsx.zone}, and reading it from another zone is slow and "
                f"billed: set zones: [{fsx.zone}], or have efs too",
                ("zones", key, "aws.storage.efs"),
            )
