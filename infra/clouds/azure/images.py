"""The images that pods run: a container registry, and the builds of what is in it, inside `up`.

    made = images.declare(base, control)
    made.controller          # ebbdev1a2b3c4d.azurecr.io/controller@sha256:...
    made.compressed_mb       # what a machine fetches of each

An image is tagged with a hash of its sources (infra/recipes.py); a build runs only when that hash is new: by a quick task of the
registry (acr.py), or by the Docker of the machine that runs `up`. Pods name images by digest. etcd's image is the public
one of workloads/manifests. With `build: none` nothing is made: the stack's file names images that exist.
"""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pulumi
import pulumi_command as command
import pulumi_docker_build as docker_build
from pulumi_azure_native.containerregistry import Registry

from infra import cloud, manifests
from infra.clouds.azure import acr, names
from infra.clouds.azure.base import Base
from infra.clouds.azure.cluster import ControlPlane
from infra.config import ROOT, Stack
from infra.part import Part
from infra.recipes import CONTROLLER, TRAINER, Recipe, recipes

# Docker's official image from a mirror: Docker Hub refuses anonymous pulls from the addresses that tasks share. Microsoft's own
# mirror is not known to have this tag.
BASE_IMAGE = "public.ecr.aws/docker/library/python:3.11-slim-bookworm"


@dataclass(frozen=True, kw_only=True)
class Images(cloud.Images):
    """`compressed_mb`: image -> what a machine fetches of it, in MB; empty for images that were not built by a task."""

    compressed_mb: Mapping[str, pulumi.Output[float]] = field(default_factory=dict)


def declare(base: Base, control: ControlPlane) -> Images:
    """The images of a stack."""
    stack, build = base.stack, base.settings.images.build
    if build == "none":
        return _named(base)
    part = base.part("images")
    registry = _registry(base, part, control)
    wanted = recipes(stack, BASE_IMAGE)
    if build == "acr":
        built = {one.name: _by_task(base, part, registry, one) for one in wanted}
        sizes = {name: answer.apply(lambda said: float(json.loads(said)["compressed_mb"])) for name, answer in built.items()}
        digests = {name: answer.apply(lambda said: str(json.loads(said)["digest"])) for name, answer in built.items()}
    else:
        digests, sizes = _by_docker(part, registry, wanted), {}
    where = {one.name: one.repository for one in wanted}
    images = {name: pulumi.Output.concat(registry.login_server, f"/{where[name]}@", digest) for name, digest in digests.items()}
    return Images(
        controller=images[CONTROLLER],
        trainers={name: image for name, image in images.items() if where[name] == TRAINER},
        etcd=_public("ebb-etcd"),
        legacy_etcd=_legacy(stack),
        compressed_mb=sizes,
    )


def _named(base: Base) -> Images:
    """Images that somebody else has built; the settings' checks have seen that all are named."""
    given = base.settings.images
    return Images(
        controller=pulumi.Output.from_input(given.controller or ""),
        trainers={name: pulumi.Output.from_input(reference) for name, reference in given.trainers.items()},
        etcd=_public("ebb-etcd"),
        legacy_etcd=_legacy(base.stack),
    )


def _legacy(stack: Stack) -> pulumi.Output[str] | None:
    return _public("ebb-etcd-legacy", manifests.LEGACY) if stack.legacy_rendezvous else None


def _public(name: str, folder: Path = manifests.FOLDER) -> pulumi.Output[str]:
    return pulumi.Output.from_input(manifests.pinned(name, folder))


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
    base.allow(part, "pull", "AcrPull", control.kubelet[0], registry.id)
    return registry


def _by_task(base: Base, part: Part, registry: Registry, recipe: Recipe) -> pulumi.Output[str]:
    """What the runner says: JSON with digest and size. It is `exec`ed, so that what ends the resource ends the runner."""
    words = [_python(), "-m", acr.__name__, "--subscription", base.settings.subscription_id, "--group", base.name]
    words += ["--repository", recipe.repository, "--tag", recipe.tag, "--folder", recipe.folder]
    words += [word for key, value in recipe.arguments.items() for word in ("--argument", f"{key}={value}")]
    ran = command.local.Command(
        f"image-{recipe.name}",
        create=pulumi.Output.concat(f"exec {shlex.join(words)} --registry ", registry.name),
        triggers=[recipe.tag],
        add_previous_output_in_env=False,
        logging=command.local.Logging.STDERR,
        opts=part.child(depends_on=[registry]),
    )
    return ran.stdout


def _python() -> str:
    """This Python, by a path that is the same in every checkout that has one: it is an input, and a new one is an update."""
    here = Path(sys.executable)
    return str(here.relative_to(ROOT)) if here.is_relative_to(ROOT) else str(here)


def _by_docker(part: Part, registry: Registry, wanted: Sequence[Recipe]) -> dict[str, pulumi.Output[str]]:
    """Docker is signed in by the Azure CLI, for three hours and for this user alone, before something is built."""
    login = command.local.Command(
        "registry-login",
        create=pulumi.Output.concat("az acr login --name ", registry.name),
        triggers=[one.tag for one in wanted],
        add_previous_output_in_env=False,
        logging=command.local.Logging.STDERR,
        opts=part.child(depends_on=[registry]),
    )
    return {one.name: _docker_image(part, registry, login, one) for one in wanted}


def _docker_image(part: Part, registry: Registry, login: pulumi.Resource, recipe: Recipe) -> pulumi.Output[str]:
    address = pulumi.Output.concat(registry.login_server, f"/{recipe.repository}:")
    cache = pulumi.Output.concat(address, recipe.cache_tag)
    return docker_build.Image(
        f"image-{recipe.name}",
        context={"location": "."},  # relative to Pulumi.yaml: an absolute path would differ on another machine
        dockerfile={"location": recipe.dockerfile},
        build_args=dict(recipe.arguments),
        build_on_preview=False,
        platforms=[docker_build.Platform.LINUX_AMD64],
        push=True,
        tags=[pulumi.Output.concat(address, recipe.tag), cache],
        cache_from=[{"registry": {"ref": cache}}],
        cache_to=[{"inline": {}}],
        # The registry takes its images along, and by then Docker's login has long expired.
        opts=part.child(depends_on=[login], retain_on_delete=True),
    ).digest
