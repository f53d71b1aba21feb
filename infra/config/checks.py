"""Checks of the settings that every cloud has. Each check yields Problems and raises nothing."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from infra import catalog, clouds
from infra.config import buckets
from infra.config.model import NodeGroupSettings, Stack
from infra.config.section import Problem, choice
from workloads.cluster import DEFAULT_IMAGE, InstanceType

NAME_LENGTH = 40  # machines are called <name>-<5 characters>, and pods carry that in a label of 63
STACK_LENGTH = 24
TEAM_LENGTH = 20  # a volume is called ebb-<stack>-team-<team>-<what it is>
TRAINER = "ebb-trainer"  # in job files, in place of the stack's image; ebb-trainer:<name> is that of ebb:trainers


def problems(stack: Stack) -> Iterator[Problem]:
    """Everything that disagrees."""
    yield from _zones(stack)
    yield from _instance_types(stack)
    yield from _manager(stack)
    taken: dict[str, str] = {}
    for index, group in enumerate(stack.node_groups):
        where = f"nodeGroups[{index}]"
        yield from _places(where, group, stack)
        yield from _machines(where, group, stack)
        yield from _capacity(where, group, stack)
        yield from _image(where, group, stack)
        yield from _names(where, group, stack, taken)
        if group.min > group.max:
            text = f"found {group.max}, which is less than min ({group.min}): raise max or lower min"
            yield Problem(f"{where}.max", text, (f"{where}.min",))
    yield from _trainers(stack)
    yield from _datasets(stack)
    yield from buckets.uncovered(stack)
    yield from _jobs(stack)
    yield from _teams(stack)
    yield from _monitoring(stack)
    yield from _logs(stack)


def name(stack: str) -> Iterator[Problem]:
    """Names of clouds' resources are made of the stack's: ebb-<stack>-<what it is>-<random>, at most 63 or 64 characters."""
    if len(stack) > STACK_LENGTH or not re.fullmatch("[a-z]([a-z0-9-]*[a-z0-9])?", stack):
        text = f"found {stack!r}; allowed are {STACK_LENGTH} of a-z, 0-9 and -, first a letter: `pulumi stack init` another"
        yield Problem("the stack's name", text)


def _monitoring(stack: Stack) -> Iterator[Problem]:
    wanted = stack.monitoring
    if wanted.grafana and not wanted.prometheus:
        text = "found true without a Prometheus for it to ask: set monitoring.prometheus to true; for one that is there already, "
        yield Problem("monitoring.grafana", f"{text}docs/monitoring.md has the dashboards", ("monitoring.prometheus",))
    if wanted.managed and stack.cloud in clouds.names() and not clouds.named(stack.cloud).MANAGED_MONITORING:
        able = ", ".join(name for name in clouds.names() if clouds.named(name).MANAGED_MONITORING)
        text = f"found true; {stack.cloud} has no service for metrics of its own ({able} have): set monitoring.prometheus instead"
        yield Problem("monitoring.managed", text, ("cloud",))


def _logs(stack: Stack) -> Iterator[Problem]:
    if "keep_gib" in stack.logs.model_fields_set and stack.cloud in clouds.names():
        service = clouds.named(stack.cloud).LOG_SERVICE
        if service:
            text = f"found {stack.logs.keep_gib}; {service} is paid by what comes in and bounds no size: remove it"
            yield Problem("logs.keepGiB", f"{text}, and set logs.keepDays", ("cloud",))


def _zones(stack: Stack) -> Iterator[Problem]:
    for zone in _twice(stack.zones):
        yield Problem("zones", f"{zone!r} is there twice: remove one")


def _twice(values: Sequence[str]) -> list[str]:
    return sorted({one for one in values if values.count(one) > 1})


def _instance_types(stack: Stack) -> Iterator[Problem]:
    """Those of the stack itself are like one that is known, or say all that cannot be guessed."""
    if stack.cloud not in clouds.names():
        return
    catalogued = catalog.names(stack.cloud)
    for name, one in stack.instance_types.items():
        where = f"instanceTypes.{name}"
        if one.like is not None and one.like not in catalogued:
            yield Problem(f"{where}.like", choice(one.like, catalogued), ("cloud",))
        elif (one.like or name) not in catalogued:
            for key, value in (("cpu", one.cpu), ("memoryGiB", one.memory_gib)):
                if value is None:
                    fix = "say it, or name one that it is `like`" if catalogued else "say it"
                    yield Problem(f"{where}.{key}", f"is missing, and no known instance type is called {name!r}: {fix}")
        if one.gpu is not None and one.gpu not in catalog.GPUS:
            yield Problem(f"{where}.gpu", choice(one.gpu, tuple(catalog.GPUS)))
        made = catalog.by_name(stack, name)
        if made and made.gpus and not made.gpu_type:
            yield Problem(f"{where}.gpu", f"is missing, with gpus: {made.gpus}: say which, one of {', '.join(catalog.GPUS)}")


def _manager(stack: Stack) -> Iterator[Problem]:
    if stack.manager.zone not in stack.zones:
        yield Problem("manager.zone", choice(stack.manager.zone, stack.zones), ("zones",))
    elif stack.manager.count > len(set(stack.zones)) and not hasattr(stack.settings, "manager_selector"):
        text = f"found {stack.manager.count}, each in a zone of its own, and there is only {stack.zones[0]!r}"
        yield Problem("manager.count", f"{text}: add a zone, or remove count", ("zones",))
    known = catalog.names(stack, gpus=False)
    if stack.manager.instance_type not in known:
        yield Problem("manager.instanceType", choice(stack.manager.instance_type, known), ("cloud",))


def _places(where: str, group: NodeGroupSettings, stack: Stack) -> Iterator[Problem]:
    for zone in dict.fromkeys(group.zones or ()):
        if zone not in stack.zones:
            yield Problem(f"{where}.zones", choice(zone, stack.zones), ("zones",))
    for zone in _twice(group.zones or ()):
        yield Problem(f"{where}.zones", f"{zone!r} is there twice: remove one")


def _machines(where: str, group: NodeGroupSettings, stack: Stack) -> Iterator[Problem]:
    """The line names machines that exist, that may be used, and that are alike."""
    uses = ("cloud", f"{where}.gpu", f"{where}.instanceTypes")
    gpus, names = catalog.gpu_types(stack), catalog.names(stack)
    if not group.gpu and not group.instance_types:
        yield Problem(where, "neither gpu nor instanceTypes is there: name one of them", uses)
    if group.gpu and group.gpu.lower() not in {one.lower() for one in gpus}:
        text = _refused(group.gpu, catalog.by_gpu(stack, group.gpu)) or _lacking(stack, group.gpu)
        yield Problem(f"{where}.gpu", text or choice(group.gpu, gpus), uses)
    for name in dict.fromkeys(group.instance_types):
        if name not in names:
            yield Problem(f"{where}.instanceTypes", _refused(name, catalog.by_name(stack, name)) or choice(name, names), uses)
    yield from _shape(where, group, stack)


def _refused(name: str, machine: InstanceType | None) -> str:
    return f"found {name!r}, which cannot be used: {machine.refused}" if machine and machine.refused else ""


def _lacking(stack: Stack, gpu: str) -> str:
    """A real GPU type, but not of this cloud."""
    nearest = catalog.nearest_gpu(stack, gpu)
    if nearest is None:
        return ""
    like = catalog.GPUS[nearest]
    return (
        f"found {gpu!r}, which {stack.cloud!r} does not have; nearest is {nearest} ({like.memory_gib} GiB, compute capability "
        f"{like.capability}) of {', '.join(catalog.gpu_types(stack))}"
    )


def _capacity(where: str, group: NodeGroupSettings, stack: Stack) -> Iterator[Problem]:
    """The ways in which machines can be bought there."""
    if stack.cloud not in clouds.names():
        return
    allowed = clouds.named(stack.cloud).CAPACITIES
    if group.capacity not in allowed:
        text = f"found {group.capacity!r}; on {stack.cloud!r} allowed are {', '.join(allowed)}"
        yield Problem(f"{where}.capacity", text, ("cloud",))


def _shape(where: str, group: NodeGroupSettings, stack: Stack) -> Iterator[Problem]:
    if not group.instance_types:
        return
    machines = catalog.machines(stack, group)
    for machine in machines:
        if group.gpu and machine.gpu_type.lower() != group.gpu.lower():
            has = f"has {machine.gpu_type}" if machine.gpu_type else "has no GPU"
            yield Problem(where, f"instance type {machine.name!r} {has}, but gpu is {group.gpu!r}: leave one of the two out",
                          ("cloud", f"{where}.gpu", f"{where}.instanceTypes"))  # fmt: skip
        for what, value in machine.shape.items():
            first = machines[0].shape.get(what)
            if value != first:
                yield Problem(
                    f"{where}.instanceTypes",
                    f"{machine.name} has {value} {what}, {machines[0].name} has {first}: machines of a group are of one shape, "
                    "or the autoscaler counts wrong; make it a line of its own",
                    ("cloud",),
                )


def _image(where: str, group: NodeGroupSettings, stack: Stack) -> Iterator[Problem]:
    """The torch of the group's image has code for the group's GPU."""
    if group.image not in {DEFAULT_IMAGE, *stack.trainers}:
        text = f"{choice(group.image, [DEFAULT_IMAGE, *stack.trainers])}: add it to ebb:trainers, or take one that is there"
        yield Problem(f"{where}.image", text, ("trainers",))
        return
    trainer, uses = stack.trainer(group.image), ("cloud", "trainers", f"{where}.gpu", f"{where}.instanceTypes", f"{where}.image")
    build = catalog.torch_build(trainer.torch, trainer.cuda)
    for gpu_type in dict.fromkeys(one.gpu_type for one in catalog.machines(stack, group) if one.gpus and not one.refused):
        gpu = catalog.GPUS[gpu_type]
        if build is None or build.runs_on(gpu):
            continue
        yield Problem(
            f"{where}.image",
            f"{gpu_type} has compute capability {gpu.capability}, and torch {trainer.torch} for CUDA {trainer.cuda} "
            f"(image {group.image!r}) has code for {', '.join(build.architectures)} only: {_suggest_image(gpu)}",
            uses,
        )


def _suggest_image(gpu: catalog.Gpu) -> str:
    build = next((one for one in catalog.BUILDS if one.runs_on(gpu)), None)
    if build is None:
        return "no build of torch that Ebb knows has; take another GPU"
    major = build.cuda.split(".", maxsplit=1)[0]
    vision = f"0.{int(build.torch.split('.')[1]) + catalog.TORCHVISION_OFFSET}.0"
    entry = f"cuda{major}: {{torch: {build.torch}.0, torchvision: {vision}, cuda: '{build.cuda}'}}"
    return f"add `{entry}` to ebb:trainers and set image: cuda{major} here"


def _names(where: str, group: NodeGroupSettings, stack: Stack, taken: dict[str, str]) -> Iterator[Problem]:
    uses = ("zones", f"{where}.gpu", f"{where}.instanceTypes", f"{where}.capacity", f"{where}.zones")
    for name in group.names(stack.zones).values():
        if name in taken:
            yield Problem(
                f"{where}.name", f"{name!r} is taken by {taken[name]}: names differ, set `name` to tell them apart", uses
            )
            return
        if len(name) > NAME_LENGTH:
            yield Problem(
                f"{where}.name", f"{name!r} has {len(name)} characters; allowed are {NAME_LENGTH}: set a shorter `name`", uses
            )
            return
        taken[name] = where


def _trainers(stack: Stack) -> Iterator[Problem]:
    known = [f"{one.torch} with CUDA {one.cuda}" for one in catalog.BUILDS]
    for name, trainer in stack.trainers.items():
        if catalog.torch_build(trainer.torch, trainer.cuda) is None:
            yield Problem(
                f"trainers.{name}",
                f"found torch {trainer.torch} with CUDA {trainer.cuda}; known are {', '.join(known)}: take one of them, or add "
                "the build to infra/catalog.py with the GPUs that it has code for",
            )
            continue
        minor = int(trainer.torch.split(".")[1]) + catalog.TORCHVISION_OFFSET
        if trainer.torchvision.split(".")[:2] != ["0", str(minor)]:
            yield Problem(
                f"trainers.{name}.torchvision",
                f"found {trainer.torchvision!r}, which was built for another torch: with torch {trainer.torch} it is 0.{minor}.x",
                (f"trainers.{name}.torch",),
            )


class ImageSettings(Protocol):
    """The part of a cloud's section that says how the images come to be."""

    @property
    def build(self) -> str: ...
    @property
    def controller(self) -> str | None: ...
    @property
    def trainers(self) -> Mapping[str, str]: ...
    @property
    def model_fields_set(self) -> set[str]: ...


def images(where: str, images: ImageSettings, stack: Stack) -> Iterator[Problem]:
    """Images are named where nothing builds them, and only there. `where`: the key of the section."""
    needed = list(dict.fromkeys((DEFAULT_IMAGE, *stack.trainers)))
    if images.build != "none":
        for key in sorted(images.model_fields_set & {"controller", "trainers"}):
            text = f"not used with build: {images.build}: remove it, or set build: none"
            yield Problem(f"{where}.{key}", text, (f"{where}.build",))
        return
    if images.controller is None:
        yield Problem(f"{where}.controller", "missing: with build: none it names the controller's image", (f"{where}.build",))
    for name in needed:
        if name not in images.trainers:
            text = "missing: with build: none each trainer needs its image, and node groups use this one"
            yield Problem(f"{where}.trainers.{name}", text, (f"{where}.build", f"{where}.trainers", "trainers"))
    for name in images.trainers:
        if name not in needed:
            text = f"{choice(name, needed)}: add it to ebb:trainers, or remove it here"
            yield Problem(f"{where}.trainers.{name}", text, ("trainers",))


def _datasets(stack: Stack) -> Iterator[Problem]:
    names = {"digits"} if stack.digits else set[str]()
    for index, one in enumerate(stack.datasets):
        where = f"datasets[{index}]"
        if one.name in names:
            yield Problem(f"{where}.name", f"{one.name!r} is taken: rename it, the folder is called so")
        names.add(one.name)
        sums = {"sha256": (one.sha256, 64), "md5": (one.md5, 32)}
        if one.kind == "imagenet":
            for key, (value, _) in sums.items():
                if value is not None:
                    yield Problem(f"{where}.{key}", "kind imagenet has three archives, whose checksums are known: remove it")
            continue
        if not one.sha256 and not one.md5:
            text = (
                "sha256 or md5 is missing: without a checksum a broken download would be trained on; take it from the publisher"
            )
            yield Problem(where, text, (f"{where}.sha256", f"{where}.md5"))
        for key, (value, length) in sums.items():
            if value is not None and len(value) != length:
                yield Problem(f"{where}.{key}", f"found {len(value)} digits; allowed are {length}: copy the whole checksum")


def _jobs(stack: Stack) -> Iterator[Problem]:
    """A job of the stack finds its image and machines with its GPU; if not, its workers would wait for ever."""
    gpus = sorted({one.gpu_type for line in stack.node_groups for one in catalog.machines(stack, line) if one.gpus})
    for job in stack.jobs:
        where = f"jobs ({_inside(job, 'metadata', 'name')})"
        for container in _inside(job, "spec", "replicaSpecs", "Worker", "template", "spec", "containers") or ():
            name, _, tag = str(_inside(container, "image")).partition(":")
            if name == TRAINER and tag and tag not in stack.trainers:
                yield Problem(
                    where, f"its image is {name}:{tag}, and {tag!r} is not in ebb:trainers: add it there", ("trainers",)
                )
        wanted = _inside(job, "spec", "placement", "gpuType")
        if wanted and str(wanted).lower() not in {gpu.lower() for gpu in gpus}:
            have = f"have {', '.join(gpus)}" if gpus else "have no GPUs"
            text = f"it asks for GPU {wanted!r}, and the node groups {have}: add one with it, or change placement.gpuType"
            yield Problem(where, text, ("cloud", "nodeGroups"))
        if _inside(job, "spec", "rdzvBackend") == "etcd" and not stack.legacy_rendezvous:
            text = "it asks for torch's own rendezvous (rdzvBackend: etcd): set ebb:legacyRendezvous to true, or take etcd3"
            yield Problem(where, text, ("legacyRendezvous",))


def _teams(stack: Stack) -> Iterator[Problem]:
    """Names are those of namespaces and volumes, and somebody is in each team."""
    for name, team in stack.teams.items():
        where, roles = f"teams.{name}", ("readers", "researchers", "leads")
        uses = tuple(f"{where}.{role}[0]" for role in roles)  # of a list without a right entry the first is wrong
        if len(name) > TEAM_LENGTH or not re.fullmatch("[a-z]([a-z0-9-]*[a-z0-9])?", name):
            yield Problem(where, f"is no name of a team; allowed are {TEAM_LENGTH} of a-z, 0-9 and -, first a letter: rename it")
        if not team.people:
            yield Problem(where, "nobody is in it: name people under researchers, leads or readers, e.g. [group:vision]", uses)
        if team.borrow and team.gpus is None:
            text = (
                f"is {team.borrow}, without gpus: a team without a quota has no limit that it could go beyond; say gpus as well"
            )
            yield Problem(f"{where}.borrow", text)
        for role in roles:
            for one in _twice(getattr(team, role)):
                yield Problem(f"{where}.{role}", f"{one!r} is there twice: remove one")


def _inside(node: Any, *keys: str) -> Any:
    """The value there, or None where the job is not as it should be: the API server says that better."""
    for key in keys:
        node = node.get(key) if isinstance(node, dict) else None
    return node
