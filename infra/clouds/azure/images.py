"""The images that pods run: a container registry, and the builds of what is in it, inside `up`.

    made = declare(base, control)
    made.controller          # ebbdev1a2b3c4d.azurecr.io/controller@sha256:...
    made.compressed_mb       # what a machine fetches of each

Shared with the other clouds: infra/images.py. With `build: acr` a quick task of the registry builds, and acr.py waits;
with `build: docker` the Azure CLI signs Docker in; with `build: none` nothing is made: the stack's file names images that exist.
"""

from typing import Any

import pulumi
import pulumi_command as command
from pulumi_azure_native.containerregistry import Registry

from infra import images
from infra.clouds.azure import acr, names
from infra.clouds.azure.base import Base
from infra.clouds.azure.cluster import ControlPlane
from infra.config import Stack
from infra.images import BuiltImages, Recipe
from infra.part import Part

# Docker's official image from a mirror: Docker Hub refuses anonymous pulls from the addresses that tasks share. Microsoft's own
# mirror is not known to have this tag.
BASE_IMAGE = "public.ecr.aws/docker/library/python:3.11-slim-bookworm"


def recipes(stack: Stack) -> list[Recipe]:
    """The images that the stack builds; with the libraries for InfiniBand where node groups have it."""
    connected = {line.image for line in stack.node_groups if getattr(line.settings, "infiniband", False)}
    return images.recipes(stack, BASE_IMAGE, {name: {"RDMA": "1"} for name in connected})


def declare(base: Base, control: ControlPlane) -> BuiltImages:
    """The images of a stack."""
    build = base.settings.images.build
    if build == "none":
        return images.existing(base.stack, base.settings.images)
    part = base.part("images")
    registry = _registry(base, part, control)
    wanted = recipes(base.stack)
    urls = {one.name: pulumi.Output.concat(registry.login_server, f"/{one.repository}") for one in wanted}
    sizes = {}
    if build == "acr":
        answers = {one.name: _by_task(base, part, registry, one) for one in wanted}
        digests = {name: answer["digest"] for name, answer in answers.items()}
        sizes = {name: answer["compressed_mb"] for name, answer in answers.items()}
    else:
        login = _login(part, registry, [one.tag for one in wanted])
        digests = {one.name: images.by_docker(part, one, urls[one.name], depends_on=[login]).digest for one in wanted}
    references = {name: pulumi.Output.concat(urls[name], "@", digest) for name, digest in digests.items()}
    return images.of_stack(base.stack, references, sizes)


def _registry(base: Base, part: Part, control: ControlPlane) -> Registry:
    """Machines pull from it with their identity; nobody has a password for it. Destroy takes its images along: they are rebuilt
    from the checkout at any time."""
    registry = Registry(
        f"{base.name}-images",
        registry_name=names.world_wide(base.name.removeprefix("ebb-"), base.settings.subscription_id),
        resource_group_name=base.group.name,
        location=base.settings.location,
        sku={"name": "Standard"},
        admin_user_enabled=False,
        anonymous_pull_enabled=False,
        tags=base.tags,
        opts=part.child(),
    )
    base.allow(part, "pull", "AcrPull", control.kubelet, registry.id)
    return registry


def _by_task(base: Base, part: Part, registry: Registry, recipe: Recipe) -> pulumi.Output[Any]:
    words = ["--subscription", base.settings.subscription_id, "--group", base.name, "--repository", recipe.repository]
    words += [word for source in recipe.sources for word in ("--source", source)]
    made = pulumi.Output.concat("--registry ", registry.name)
    return images.by_program(part, recipe, acr.__name__, words, made, [registry])


def _login(part: Part, registry: Registry, tags: list[str]) -> command.local.Command:
    """Docker is signed in by the Azure CLI, for three hours and for this user alone, before something is built."""
    return command.local.Command(
        "registry-login",
        create=pulumi.Output.concat("az acr login --name ", registry.name),
        triggers=tags,
        add_previous_output_in_env=False,
        logging=command.local.Logging.STDERR,
        opts=part.child(depends_on=[registry]),
    )
