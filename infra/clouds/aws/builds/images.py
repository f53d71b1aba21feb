"""The images that pods run: two ECR repositories, and the builds of what is in them, inside `up`.

    made = declare(part, "ebb-dev", stack, settings, identity.role(part, "ebb-dev", "codebuild"))
    made.controller          # ACCOUNT.dkr.ecr.REGION.amazonaws.com/ebb-dev/controller@sha256:...
    made.compressed_mb       # what a machine fetches of each

Shared with the other clouds: infra/images.py. With `build: codebuild` the sources go as a zip to S3, and codebuild.py waits for
the build; with `build: none` nothing is made: the stack's file names images that exist.
"""

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import cloudwatch, ecr, iam
from pulumi_aws import codebuild as aws_codebuild

from infra import images as shared
from infra.clouds.aws.builds import codebuild
from infra.clouds.aws.settings import Settings
from infra.config import Stack
from infra.images import CONTROLLER, TRAINER, BuiltImages, Recipe
from infra.part import Part

with warnings.catch_warnings():  # on import, this module of the SDK warns of old names in it
    warnings.simplefilter("ignore", DeprecationWarning)
    from pulumi_aws.s3 import (
        Bucket,
        BucketLifecycleConfiguration,
        BucketObjectv2,
        BucketPublicAccessBlock,
        BucketServerSideEncryptionConfiguration,
    )

# Docker's official image from AWS's mirror: Docker Hub refuses anonymous pulls from the addresses that CodeBuild shares.
BASE = "public.ecr.aws/docker/library/python:3.11-slim-bookworm"
KEPT, UNTAGGED_DAYS = 10, 7  # ten builds back is further than any job runs; what has lost its tag is nobody's
# 4 vCPU, 8 GiB, 128 GB of disk: torch's image is 8 GB while it is built
# (https://docs.aws.amazon.com/codebuild/latest/userguide/build-env-ref-compute-types.html, read 2026-11-21).
MACHINE, BUILDER = "BUILD_GENERAL1_MEDIUM", "aws/codebuild/amazonlinux-x86_64-standard:5.0"
BUILD_MINUTES, LOG_DAYS = 60, 14


@dataclass(frozen=True, kw_only=True)
class Built:
    """An image by its digest, and what a machine fetches of it."""

    reference: pulumi.Output[str]
    compressed_mb: pulumi.Output[float]


def recipes(stack: Stack) -> list[Recipe]:
    """The images that the stack builds; with EFA's libraries where node groups have EFA."""
    efa = {line.image for line in stack.node_groups if getattr(line.settings, "efa", False)}
    return shared.recipes(stack, BASE, {name: {"EFA": "1"} for name in efa})


def declare(part: Part, name: str, stack: Stack, settings: Settings, builder: iam.Role | None = None) -> BuiltImages:
    """`builder`: the role of CodeBuild, needed with `build: codebuild` alone."""
    if settings.images.build == "none":
        return shared.existing(stack, settings.images)
    wanted = recipes(stack)
    repositories = {one: _repository(part, name, one, wanted) for one in (CONTROLLER, TRAINER)}
    pairs = [(one, repositories[one.repository]) for one in wanted]
    if settings.images.build == "docker":
        built = {one.name: _by_docker(part, one, repository) for one, repository in pairs}
    else:
        assert builder is not None, "build: codebuild needs its role"
        built = _by_codebuild(part, name, settings.region, builder, pairs)
    references = {name: one.reference for name, one in built.items()}
    return shared.of_stack(stack, references, {name: one.compressed_mb for name, one in built.items()})


def _repository(part: Part, name: str, kind: str, wanted: list[Recipe]) -> ecr.Repository:
    """A tag means one image for ever, but for the cache's: that is whatever was built last."""
    repository = ecr.Repository(
        f"repository-{kind}",
        name=f"{name}/{kind}",
        image_tag_mutability="IMMUTABLE_WITH_EXCLUSION",
        image_tag_mutability_exclusion_filters=[{"filter": f"*.{shared.CACHE}", "filter_type": "WILDCARD"}],
        image_scanning_configuration={"scan_on_push": True},
        force_delete=True,  # images are rebuilt from the checkout at any time: destroy need not stop for them
        opts=part.child(),
    )
    ecr.LifecyclePolicy(
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


def _by_docker(part: Part, recipe: Recipe, repository: ecr.Repository) -> Built:
    """Built by the Docker of the machine that runs `up`, with the password that ECR gives out for the occasion."""
    image = shared.by_docker(part, recipe, repository.repository_url, registries=[_login(part, repository)])
    stored = ecr.get_image_output(
        repository_name=repository.name, image_digest=image.digest, opts=pulumi.InvokeOutputOptions(parent=part)
    )
    return Built(
        reference=pulumi.Output.concat(repository.repository_url, "@", image.digest),
        compressed_mb=stored.image_size_in_bytes.apply(lambda size: round(size / shared.MB, 1)),
    )


def _login(part: Part, repository: ecr.Repository) -> shared.Registry:
    """Asked of the repository's registry, so after the repository exists: the first preview asks nothing."""
    login = ecr.get_authorization_token_output(registry_id=repository.registry_id, opts=pulumi.InvokeOutputOptions(parent=part))
    return {"address": login.proxy_endpoint, "username": login.user_name, "password": pulumi.Output.secret(login.password)}


def _by_codebuild(
    part: Part, name: str, region: str, role: iam.Role, wanted: Sequence[tuple[Recipe, ecr.Repository]]
) -> dict[str, Built]:
    """Built by CodeBuild from a zip in S3; `up` waits for it, with progress. Image name -> what was built."""
    bucket, project = _bucket(part, name), _project(part, name, role)
    archives = {one.sources: _archive(part, bucket, one) for one in {one.sources: one for one, _ in wanted}.values()}
    built = {}
    for recipe, repository in wanted:
        archive = archives[recipe.sources]
        made = pulumi.Output.format(
            "--project {0} --source {1}/{2} --repository {3} --url {4}",
            project.name, archive.bucket, archive.key, repository.name, repository.repository_url,
        )  # fmt: skip
        words = ["--cache", recipe.cache_tag, "--region", region]
        answer = shared.by_program(part, recipe, codebuild.__name__, words, made, [project, archive])
        reference = pulumi.Output.concat(repository.repository_url, "@", answer["digest"])
        built[recipe.name] = Built(reference=reference, compressed_mb=answer["compressed_mb"])
    return built


def _bucket(part: Part, name: str) -> Bucket:
    """Holds zips of some 100 kB. All in it can be made again, so destroy takes the bucket with what is in it."""
    bucket = Bucket("image-sources", bucket_prefix=f"{name}-sources-", force_destroy=True, opts=part.child())
    BucketPublicAccessBlock(
        "image-sources",
        bucket=bucket.bucket,
        block_public_acls=True,
        block_public_policy=True,
        ignore_public_acls=True,
        restrict_public_buckets=True,
        opts=part.child(),
    )
    BucketServerSideEncryptionConfiguration(
        "image-sources",
        bucket=bucket.bucket,
        rules=[{"apply_server_side_encryption_by_default": {"sse_algorithm": "AES256"}}],
        opts=part.child(),
    )
    BucketLifecycleConfiguration(
        "image-sources",
        bucket=bucket.bucket,
        rules=[
            {
                "id": "broken-uploads",
                "status": "Enabled",
                "filter": {"prefix": ""},  # of every object
                "abort_incomplete_multipart_upload": {"days_after_initiation": 1},
            }
        ],
        opts=part.child(),
    )
    return bucket


def _archive(part: Part, bucket: Bucket, recipe: Recipe) -> BucketObjectv2:
    path = shared.packed(recipe, shared.archive, ".zip")
    source = pulumi.FileAsset(str(path))
    name = f"image-source-{recipe.repository}"
    return BucketObjectv2(name, bucket=bucket.bucket, key=path.name, source=source, opts=part.child())


def _project(part: Part, name: str, role: iam.Role) -> aws_codebuild.Project:
    """Can build any of the images: each build is told which, and its zip."""
    log = cloudwatch.LogGroup("image-builds", name=f"/aws/codebuild/{name}-images", retention_in_days=LOG_DAYS, opts=part.child())
    return aws_codebuild.Project(
        "images",
        name=f"{name}-images",
        description="Builds the images of Ebb; started by pulumi up",
        service_role=role.arn,
        build_timeout=BUILD_MINUTES,
        artifacts={"type": "NO_ARTIFACTS"},
        environment={"type": "LINUX_CONTAINER", "compute_type": MACHINE, "image": BUILDER, "privileged_mode": True},  # for Docker
        source={"type": "NO_SOURCE", "buildspec": codebuild.BUILDSPEC},
        logs_config={"cloudwatch_logs": {"group_name": log.name, "status": "ENABLED"}},
        opts=part.child(),
    )
