"""The images that pods run: two ECR repositories, and the builds of what is in them, inside `up`.

    made = declare(part, "ebb-dev", stack, settings, identity.role(part, "ebb-dev", "codebuild"))
    made.controller          # ACCOUNT.dkr.ecr.REGION.amazonaws.com/ebb-dev/controller@sha256:...
    made.compressed_mb       # what a machine fetches of each

An image is tagged with a hash of its sources (infra/recipes.py); a build (image_builds.py) runs only when that hash is new. Pods
name images by digest. etcd's image is the public one of workloads/manifests. With `build: none` nothing is made: the stack's file
names images that exist.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pulumi
import pulumi_aws as aws

from infra import cloud, manifests
from infra import recipes as shared
from infra.clouds.aws.builds import image_builds
from infra.clouds.aws.part import Part
from infra.clouds.aws.settings import Settings
from infra.config import Stack
from infra.recipes import CONTROLLER, TRAINER, Recipe

# Docker's official image from AWS's mirror: Docker Hub refuses anonymous pulls from the addresses that CodeBuild shares.
BASE = "public.ecr.aws/docker/library/python:3.11-slim-bookworm"
KEPT, UNTAGGED_DAYS = 10, 7  # ten builds back is further than any job runs; what has lost its tag is nobody's


@dataclass(frozen=True, kw_only=True)
class Images(cloud.Images):
    """`compressed_mb`: image -> what a machine fetches of it, in MB; empty for images that were not built here."""

    compressed_mb: Mapping[str, pulumi.Output[float]] = field(default_factory=dict)


def recipes(stack: Stack) -> list[Recipe]:
    """What the stack builds; with EFA's libraries where node groups have EFA."""
    efa = {line.image for line in stack.node_groups if getattr(line.settings, "efa", False)}
    return shared.recipes(stack, BASE, {name: {"EFA": "1"} for name in efa})


def declare(part: Part, name: str, stack: Stack, settings: Settings, builder: aws.iam.Role | None = None) -> Images:
    """`builder`: the role of CodeBuild, needed with `build: codebuild` alone."""
    if settings.images.build == "none":
        return _named(stack, settings)
    wanted = recipes(stack)
    repositories = {one: _repository(part, name, one, wanted) for one in (CONTROLLER, TRAINER)}
    pairs = [(one, repositories[one.repository]) for one in wanted]
    if settings.images.build == "docker":
        built = {one.name: image_builds.by_docker(part, one, repository) for one, repository in pairs}
    else:
        assert builder is not None, "build: codebuild needs its role"
        built = image_builds.by_codebuild(part, name, settings.region, builder, pairs)
    return Images(
        controller=built[CONTROLLER].reference,
        trainers={one.name: built[one.name].reference for one in wanted if one.repository == TRAINER},
        etcd=_public("ebb-etcd"),
        legacy_etcd=_legacy(stack),
        compressed_mb={one.name: built[one.name].compressed_mb for one in wanted},
    )


def _named(stack: Stack, settings: Settings) -> Images:
    """Images that somebody else has built; the settings' checks have seen that all are named."""
    return Images(
        controller=pulumi.Output.from_input(settings.images.controller or ""),
        trainers={name: pulumi.Output.from_input(reference) for name, reference in settings.images.trainers.items()},
        etcd=_public("ebb-etcd"),
        legacy_etcd=_legacy(stack),
    )


def _legacy(stack: Stack) -> pulumi.Output[str] | None:
    return _public("ebb-etcd-legacy", manifests.LEGACY) if stack.legacy_rendezvous else None


def _public(name: str, folder: Path = manifests.FOLDER) -> pulumi.Output[str]:
    return pulumi.Output.from_input(manifests.pinned(name, folder))


def _repository(part: Part, name: str, kind: str, wanted: list[Recipe]) -> aws.ecr.Repository:
    """A tag means one image for ever, but for the cache's: that is whatever was built last."""
    repository = aws.ecr.Repository(
        f"repository-{kind}",
        name=f"{name}/{kind}",
        image_tag_mutability="IMMUTABLE_WITH_EXCLUSION",
        image_tag_mutability_exclusion_filters=[{"filter": f"*.{shared.CACHE}", "filter_type": "WILDCARD"}],
        image_scanning_configuration={"scan_on_push": True},
        force_delete=True,  # images are rebuilt from the checkout at any time: destroy need not stop for them
        opts=part.child(),
    )
    aws.ecr.LifecyclePolicy(
        f"expiry-{kind}",
        repository=repository.name,
        policy=json.dumps(_expiry([one.name for one in wanted if one.repository == kind])),
        opts=part.child(),
    )
    return repository


def _expiry(names: list[str]) -> dict[str, object]:
    """Each name has its own allowance: builds of one trainer shall not push out the images of another, which changes seldom."""
    rules = [
        {
            "rulePriority": number,
            "description": f"the newest {KEPT} of {name}",
            "selection": {
                "tagStatus": "tagged",
                "tagPrefixList": [f"{name}."],
                "countType": "imageCountMoreThan",
                "countNumber": KEPT,
            },
            "action": {"type": "expire"},
        }
        for number, name in enumerate(names, 1)
    ]
    untagged = {
        "rulePriority": len(names) + 1,
        "description": f"untagged for {UNTAGGED_DAYS} days",
        "selection": {
            "tagStatus": "untagged",
            "countType": "sinceImagePushed",
            "countUnit": "days",
            "countNumber": UNTAGGED_DAYS,
        },
        "action": {"type": "expire"},
    }
    return {"rules": [*rules, untagged]}
