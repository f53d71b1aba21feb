"""Machines: their AMI releases, drivers, EFA and reserved capacity."""

from collections.abc import Iterator

from infra import catalog
from infra.clouds.aws.catalog import AMI_CPU, AMI_GPU, AwsInstance
from infra.clouds.aws.settings import GroupSettings, Settings
from infra.config import NodeGroup, Problem, Stack

BLOCK = "capacity-block"
# Major version of NVIDIA's driver in AL2023_x86_64_NVIDIA, from the release with that date on, for each minor of Kubernetes
# (https://github.com/awslabs/amazon-eks-ami, CHANGELOG.md of 2026-07-14). From v20260917 on there are two, and each machine
# loads the one for its GPU (same repository, #2768); the older of them is 580.
DRIVERS = {"1.34": ((20250915, 570), (20251023, 580)), "1.35": ((20260114, 580),)}


def problems(stack: Stack, settings: Settings) -> Iterator[Problem]:
    """What disagrees."""
    yield from _releases(stack, settings)
    yield from _drivers(stack, settings)
    for index, line in enumerate(stack.node_groups):
        where = f"nodeGroups[{index}]"
        yield from _efa(where, line, stack)
        yield from _block(where, line, stack)


def _releases(stack: Stack, settings: Settings) -> Iterator[Problem]:
    minor, releases, key = settings.cluster.kubernetes_version, settings.nodes.releases, "aws.nodes.releases"
    with_gpus = any(machine.gpus for line in stack.node_groups for machine in line.machines(stack.cloud))
    for ami in (AMI_CPU, *((AMI_GPU,) if with_gpus else ())):
        if ami not in releases:
            yield Problem(
                f"{key}.{ami}",
                f"missing: pin a release, or any `up` could replace machines; https://github.com/awslabs/amazon-eks-ami/releases "
                f"lists those of {minor}",
                (key, "nodeGroups"),
            )
    for ami, release in releases.items():
        if not release.startswith(f"{minor}."):
            text = f"found {release!r}; allowed is {minor}.x-<date>, as the cluster is {minor}: change one of the two"
            yield Problem(f"{key}.{ami}", text, ("aws.cluster.kubernetesVersion",))


def _drivers(stack: Stack, settings: Settings) -> Iterator[Problem]:
    """The driver of the GPU machines' AMI is new enough for the torch of every image that they get."""
    key, minor = f"aws.nodes.releases.{AMI_GPU}", settings.cluster.kubernetes_version
    release = settings.nodes.releases.get(AMI_GPU, "")
    if not release.startswith(f"{minor}."):
        return
    found = [driver for since, driver in DRIVERS[minor] if int(release.rpartition("-")[2]) >= since]
    for image in dict.fromkeys(line.image for line in stack.node_groups if any(one.gpus for one in line.machines(stack.cloud))):
        trainer = stack.trainer(image)
        build = catalog.torch_build(trainer.torch, trainer.cuda)
        if build and found and found[-1] < build.driver:
            since = next(since for since, driver in DRIVERS[minor] if driver >= build.driver)
            yield Problem(
                key,
                f"found {release!r} with NVIDIA driver {found[-1]}, and torch {trainer.torch} for CUDA {trainer.cuda} "
                f"(image {image!r}) needs {build.driver}: take a release of {since} or later",
                ("trainers", "nodeGroups", "aws.cluster.kubernetesVersion"),
            )


def _efa(where: str, line: NodeGroup, stack: Stack) -> Iterator[Problem]:
    if not _own(line).efa:
        return
    for machine in line.machines(stack.cloud):
        if isinstance(machine, AwsInstance) and not machine.efa:
            with_efa = [one.name for one in catalog.types(stack.cloud) if isinstance(one, AwsInstance) and one.efa]
            alike = [name for name in with_efa if name.split(".")[0] == machine.name.split(".")[0]]
            families = dict.fromkeys(name.split(".")[0] for name in with_efa)
            instead = f"take {' or '.join(alike[:2])}" if alike else f"larger machines of {', '.join(families)} have it"
            uses = (f"{where}.gpu", f"{where}.instanceTypes")
            yield Problem(f"{where}.aws.efa", f"{machine.name} has no EFA: {instead}, or remove efa", uses)


def _block(where: str, line: NodeGroup, stack: Stack) -> Iterator[Problem]:
    reservation, key = _own(line).capacity_reservation_id, f"{where}.aws.capacityReservationId"
    if line.capacity != BLOCK:
        if reservation:
            text = f"found {reservation!r}, but capacity is {line.capacity}: set capacity: {BLOCK}, or remove it"
            yield Problem(key, text, (f"{where}.capacity",))
        return
    if not reservation:
        text = "missing: a capacity-block is a reservation, which you have bought: give its id, cr-..."
        yield Problem(key, text, (f"{where}.capacity",))
    zones = line.names(stack.zones)
    if len(zones) != 1:
        text = f"found {len(zones)} zones; a capacity-block is in one: set zones to the reservation's"
        yield Problem(f"{where}.zones", text, ("zones", f"{where}.capacity"))


def _own(line: NodeGroup) -> GroupSettings:
    return line.settings if isinstance(line.settings, GroupSettings) else GroupSettings()
