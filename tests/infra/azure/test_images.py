"""Images: the registry, the builds of what is in it, and images that exist."""

from typing import Any

import pytest

from infra.clouds.azure import names
from tests.infra.azure import stacks
from tests.infra.azure.world import inputs, world

REGISTRY = names.world_wide("dev", stacks.SUBSCRIPTION)


def test_the_registry_has_no_password_and_machines_may_pull() -> None:
    made = inputs(world(), "Registry")
    assert (made["registryName"], made["adminUserEnabled"], made["anonymousPullEnabled"]) == (REGISTRY, False, False)
    assert inputs(world(), "RoleAssignment", "ebb-dev-pull")["principalId"] == "id-kubelet"


def test_images_are_built_by_tasks_and_named_by_digest() -> None:
    found = world()
    builds = found.named("Command")
    assert set(builds) == {"image-controller", "image-default"}
    command = builds["image-default"].inputs
    assert command["create"].startswith("exec ")
    for words in (
        "-m infra.clouds.azure.acr",
        f"--subscription {stacks.SUBSCRIPTION}",
        "--group ebb-dev",
        "--repository trainer",
        "--dockerfile trainer/Dockerfile",
        "--source ebb --source hydra_plugins --source trainer",
        f"--registry {REGISTRY}",
    ):
        assert words in command["create"], words
    [tag] = command["triggers"]
    assert f"--tag {tag}" in command["create"]
    told = found.returned
    assert told["images"] == {
        "controller": f"{REGISTRY}.azurecr.io/controller@sha256:image-controller",
        "default": f"{REGISTRY}.azurecr.io/trainer@sha256:image-default",
    }
    assert told["imagesCompressedMB"] == {"controller": 12.5, "default": 12.5}


def test_a_further_trainer_is_built_with_its_own_torch() -> None:
    own = {**stacks.small(), "trainers": {"cuda12": {"torch": "2.13.0", "torchvision": "0.28.0", "cuda": "12.6"}}}
    found = world(stacks.stack(own))
    assert "--argument TORCH=2.13.0+cu126" in found.one("Command", "image-cuda12").inputs["create"]
    assert set(found.returned["images"]) == {"controller", "default", "cuda12"}


def test_docker_is_signed_in_before_it_builds() -> None:
    found = world(stacks.stack(images={"build": "docker"}))
    login = found.one("Command", "registry-login")
    assert login.inputs["create"] == f"az acr login --name {REGISTRY}"
    images = found.all("Image")
    assert {one.name for one in images} == {"image-controller", "image-default"}
    assert all(login.key in found.before(one) for one in images)
    assert login.inputs["triggers"] == sorted(login.inputs["triggers"], key=lambda tag: not tag.startswith("controller"))
    tags = found.one("Image", "image-default").inputs["tags"]
    assert all(tag.startswith(f"{REGISTRY}.azurecr.io/trainer:default.") for tag in tags)
    assert found.returned["images"]["default"] == f"{REGISTRY}.azurecr.io/trainer@sha256:image-default"


@pytest.mark.parametrize("kind", ["Registry", "Command", "Image"])
def test_images_that_exist_are_taken_as_they_are(kind: str) -> None:
    named: dict[str, Any] = {"build": "none", "controller": "example.org/c:1", "trainers": {"default": "example.org/t:1"}}
    found = world(stacks.stack(images=named))
    assert found.all(kind) == []
    assert found.returned["images"] == {"controller": "example.org/c:1", "default": "example.org/t:1"}
