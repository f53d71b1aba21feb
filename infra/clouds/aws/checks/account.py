"""Region, zones, tags, images and the drill."""

import re
from collections.abc import Iterator

from infra.clouds.aws.settings import Settings
from infra.config import Problem, Stack, checks, choice

TAGS = 40  # AWS allows 50 on a resource, and services and Ebb add some (https://docs.aws.amazon.com/tag-editor, 2026-11-21)
OURS = ("ebb.dev/stack", "ebb.dev/project", "Name")
SPOT = "spot"


def problems(stack: Stack, settings: Settings) -> Iterator[Problem]:
    """What disagrees."""
    yield from _zones(stack, settings)
    yield from _tags(settings)
    yield from checks.images("aws.images", settings.images, stack)
    yield from _drill(stack, settings)


def _zones(stack: Stack, settings: Settings) -> Iterator[Problem]:
    region = settings.region
    for zone in dict.fromkeys(stack.zones):
        if not re.fullmatch(rf"{region}[a-z]", zone):
            text = f"found {zone!r}; allowed are {region}a, {region}b and so on: change it, or aws.region"
            yield Problem("zones", text, ("aws.region",))


def _tags(settings: Settings) -> Iterator[Problem]:
    if len(settings.tags) > TAGS:
        yield Problem("aws.tags", f"found {len(settings.tags)} tags; allowed are {TAGS}, as AWS and Ebb add some: remove some")
    for key, value in settings.tags.items():
        where = f"aws.tags.{key}"
        if key.lower().startswith("aws:"):
            yield Problem(where, "keys that begin with aws: are for AWS: choose another")
        elif key in OURS:
            yield Problem(where, "Ebb sets this tag itself: remove it")
        elif not 1 <= len(key) <= 128 or len(value) > 256:
            text = f"found {len(key)} characters with a value of {len(value)}; allowed are 128 and 256: shorten it"
            yield Problem(where, text)
        elif not re.fullmatch(r"[\w .:/=+@-]*", key + value):
            yield Problem(where, f"found {value!r}; allowed are letters, digits, spaces and _.:/=+-@ in keys and values")


def _drill(stack: Stack, settings: Settings) -> Iterator[Problem]:
    drill = settings.drill
    if drill is None:
        return
    groups = {name: line for line in stack.node_groups if line.capacity == SPOT for name in line.names(stack.zones).values()}
    if drill.group not in groups:
        found = choice(drill.group, list(groups)) if groups else f"found {drill.group!r}; there is no spot node group"
        yield Problem("aws.drill.group", f"{found}: name a spot node group, with its zone", ("zones", "nodeGroups"))
    elif drill.machines > groups[drill.group].max:
        text = f"found {drill.machines}; {drill.group} has {groups[drill.group].max} machines at most: take fewer"
        yield Problem("aws.drill.machines", text, ("nodeGroups", "aws.drill.group"))
