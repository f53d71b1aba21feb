"""The build of an image as resources, by the local Docker or by CodeBuild; both push to ECR and tell digest and size.

    Built(reference, compressed_mb) = by_docker(part, recipe, repository)
    by_codebuild(part, "ebb-dev", region, role, [(recipe, repository), ...])["default"]

Which images there are, and where they are kept: images.py. What runs while CodeBuild builds: codebuild.py.
"""

import json
import shlex
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_aws as aws
import pulumi_command as command
import pulumi_docker_build as docker_build

from infra import recipes
from infra.clouds.aws.builds import codebuild
from infra.clouds.aws.part import Part
from infra.config import ROOT
from infra.recipes import Recipe

with warnings.catch_warnings():  # on import, this module of the SDK warns of old names in it
    warnings.simplefilter("ignore", DeprecationWarning)
    from pulumi_aws.s3 import (
        Bucket,
        BucketLifecycleConfiguration,
        BucketObjectv2,
        BucketPublicAccessBlock,
        BucketServerSideEncryptionConfiguration,
    )

# 4 vCPU, 8 GiB, 128 GB of disk: torch's image is 8 GB while it is built
# (https://docs.aws.amazon.com/codebuild/latest/userguide/build-env-ref-compute-types.html, read 2026-11-21).
MACHINE, BUILDER = "BUILD_GENERAL1_MEDIUM", "aws/codebuild/amazonlinux-x86_64-standard:5.0"
BUILD_MINUTES, LOG_DAYS = 60, 14


@dataclass(frozen=True, kw_only=True)
class Built:
    """An image by its digest, and what a machine fetches of it."""

    reference: pulumi.Output[str]
    compressed_mb: pulumi.Output[float]


def by_docker(part: Part, recipe: Recipe, repository: aws.ecr.Repository) -> Built:
    """Built by the Docker of the machine that runs `up`, with the password that ECR gives out for the occasion."""
    url = repository.repository_url
    cache = pulumi.Output.concat(url, ":", recipe.cache_tag)
    image = docker_build.Image(
        f"image-{recipe.name}",
        context={"location": "."},  # relative to Pulumi.yaml: an absolute path would differ on another machine
        dockerfile={"location": recipe.dockerfile},
        build_args=dict(recipe.arguments),
        build_on_preview=False,
        platforms=[docker_build.Platform.LINUX_AMD64],
        push=True,
        tags=[pulumi.Output.concat(url, ":", recipe.tag), cache],
        cache_from=[{"registry": {"ref": cache}}],
        cache_to=[{"inline": {}}],
        registries=[_login(part, repository)],
        # The repository takes its images along, and by then the password in the state has long expired.
        opts=part.child(retain_on_delete=True),
    )
    stored = aws.ecr.get_image_output(
        repository_name=repository.name, image_digest=image.digest, opts=pulumi.InvokeOutputOptions(parent=part)
    )
    return Built(
        reference=pulumi.Output.concat(url, "@", image.digest),
        compressed_mb=stored.image_size_in_bytes.apply(lambda size: round(size / codebuild.MB, 1)),
    )


def _login(part: Part, repository: aws.ecr.Repository) -> docker_build.RegistryArgsDict:
    """Asked of the repository's registry, so after the repository exists: the first preview asks nothing."""
    login = aws.ecr.get_authorization_token_output(
        registry_id=repository.registry_id, opts=pulumi.InvokeOutputOptions(parent=part)
    )
    return {"address": login.proxy_endpoint, "username": login.user_name, "password": pulumi.Output.secret(login.password)}


def by_codebuild(
    part: Part, name: str, region: str, role: aws.iam.Role, wanted: Sequence[tuple[Recipe, aws.ecr.Repository]]
) -> dict[str, Built]:
    """Built by CodeBuild from a zip in S3; `up` waits for it, with progress. Image name -> what was built."""
    bucket = _bucket(part, name)
    archives = {folder: _archive(part, bucket, folder) for folder in dict.fromkeys(recipe.folder for recipe, _ in wanted)}
    project = _project(part, name, role)
    return {
        recipe.name: _run(part, [*_words(recipe), "--region", region], project, archives[recipe.folder], repository)
        for recipe, repository in wanted
    }


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
        rules=[{"id": "broken-uploads", "status": "Enabled", "abort_incomplete_multipart_upload": {"days_after_initiation": 1}}],
        opts=part.child(),
    )
    return bucket


def _archive(part: Part, bucket: Bucket, folder: str) -> BucketObjectv2:
    """Its key changes with its content, so that a build never reads what another `up` is writing."""
    content = recipes.archive(ROOT, folder)
    path = ROOT / "build" / "image-sources" / f"{folder}-{recipes.name_of(content)}.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    for former in set(path.parent.glob(f"{folder}-*.zip")) - {path}:
        former.unlink(missing_ok=True)
    path.write_bytes(content)
    return BucketObjectv2(
        f"image-source-{folder}", bucket=bucket.bucket, key=path.name, source=pulumi.FileAsset(str(path)), opts=part.child()
    )


def _project(part: Part, name: str, role: aws.iam.Role) -> aws.codebuild.Project:
    """Can build any of the images: each build is told which, and its zip."""
    log = aws.cloudwatch.LogGroup(
        "image-builds", name=f"/aws/codebuild/{name}-images", retention_in_days=LOG_DAYS, opts=part.child()
    )
    return aws.codebuild.Project(
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


def _words(recipe: Recipe) -> list[str]:
    words = [_python(), "-m", codebuild.__name__]
    words += ["--tag", recipe.tag, "--cache", recipe.cache_tag, "--dockerfile", recipe.dockerfile]
    return words + [word for key, value in recipe.arguments.items() for word in ("--argument", f"{key}={value}")]


def _python() -> str:
    """This Python, by a path that is the same in every checkout that has one: it is an input, and a new one is an update."""
    here = Path(sys.executable)
    return str(here.relative_to(ROOT)) if here.is_relative_to(ROOT) else str(here)


def _run(
    part: Part,
    words: Sequence[str],
    project: aws.codebuild.Project,
    archive: BucketObjectv2,
    repository: aws.ecr.Repository,
) -> Built:
    """The command is `exec`ed, so that what ends the resource ends the runner; without `dir` it runs beside Pulumi.yaml."""
    tag = words[words.index("--tag") + 1]
    known = f"exec {shlex.join(words)}"
    made = pulumi.Output.format(
        " --project {0} --source {1}/{2} --repository {3} --url {4}",
        project.name, archive.bucket, archive.key, repository.name, repository.repository_url,
    )  # fmt: skip
    ran = command.local.Command(
        f"image-{tag.partition('.')[0]}",
        create=pulumi.Output.concat(known, made),
        triggers=[tag],
        add_previous_output_in_env=False,
        logging=command.local.Logging.STDERR,
        opts=part.child(depends_on=[project, archive]),
    )
    answer = ran.stdout.apply(json.loads)
    reference = pulumi.Output.concat(repository.repository_url, "@", answer["digest"])
    return Built(reference=reference, compressed_mb=answer["compressed_mb"])
