"""The images that pods run: an Artifact Registry repository, and the builds of what is in it, inside `up`.

    made = declare(part, "ebb-gcp", stack, settings, control)
    made.controller          # REGION-docker.pkg.dev/PROJECT/ebb-gcp/controller@sha256:...

Shared with the other clouds: infra/images.py. With `build: cloudbuild` the sources go as a tar.gz to a bucket, and build.py waits
for the build; with `build: docker` this machine's Docker must know the registry (`gcloud auth configure-docker`).
"""

from collections.abc import Iterator, Sequence

import pulumi
from pulumi_gcp import artifactregistry, projects, serviceaccount, storage

from infra import images
from infra.clouds.gcp import build
from infra.clouds.gcp.cluster import account_id
from infra.clouds.gcp.settings import Settings
from infra.config import Stack
from infra.images import BuiltImages, Recipe
from infra.part import Part

# Docker Hub refuses many anonymous pulls from one address. Cloud Build asks Google's cache of it first, by itself; naming that
# cache (mirror.gcr.io) here would fail whenever it does not hold the image just then
# (https://docs.cloud.google.com/artifact-registry/docs/pull-cached-dockerhub-images, stored copies, read 2026-11-22).
BASE = "docker.io/library/python:3.11-slim-bookworm"
# NCCL's plugin for Google's RDMA, as gpudirect-rdma/nccl-rdma-installer.yaml of https://github.com/GoogleCloudPlatform/
# container-engine-accelerators has it (at 992db8125755, 2026-06-11).
GIB = "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib:v1.1.1"
KEPT, UNTAGGED_SECONDS = 10, 7 * 24 * 3600  # ten builds back is further than any job runs
READER, WRITER = "roles/artifactregistry.reader", "roles/artifactregistry.writer"
LOGS, SOURCES = "roles/logging.logWriter", "roles/storage.objectViewer"


def recipes(stack: Stack) -> list[Recipe]:
    """The images that the stack builds; with NCCL's plugin for RDMA where node groups have it."""
    direct = {line.image for line in stack.node_groups if getattr(line.settings, "gpu_direct", False)}
    return images.recipes(stack, BASE, {name: {"RDMA": "1", "GIB": GIB} for name in direct})


def declare(part: Part, name: str, stack: Stack, settings: Settings, machines: pulumi.Output[str]) -> BuiltImages:
    """`machines`: the service account of the instances, which fetch images."""
    if settings.images.build == "none":
        return images.existing(stack, settings.images)
    wanted = recipes(stack)
    repository = _repository(part, name, settings, [one.name for one in wanted])
    _member(part, repository, "machines", READER, machines)
    url = pulumi.Output.concat(f"{settings.region}-docker.pkg.dev/{settings.project}/", repository.repository_id)
    if settings.images.build == "docker":
        places = {one.name: pulumi.Output.concat(url, "/", one.repository) for one in wanted}
        built = {
            one.name: pulumi.Output.concat(places[one.name], "@", images.by_docker(part, one, places[one.name]).digest)
            for one in wanted
        }
    else:
        built = dict(_by_cloud_build(part, name, settings, repository, wanted, url))
    return images.of_stack(stack, built)


def _repository(part: Part, name: str, settings: Settings, names: Sequence[str]) -> artifactregistry.Repository:
    """Each name has its own allowance: builds of one trainer shall not push out the images of another, which changes seldom."""
    newest = [
        {"id": f"keep-{one}", "action": "KEEP", "condition": {"tag_state": "TAGGED", "tag_prefixes": [f"{one}."]}}
        for one in names
    ]
    return artifactregistry.Repository(
        name,
        repository_id=name,
        location=settings.region,
        format="DOCKER",
        description="Images of Ebb; built from the checkout, so destroy takes them along",
        cleanup_policies=[
            *newest,  # type: ignore[list-item]
            {"id": "recent", "action": "KEEP", "most_recent_versions": {"keep_count": KEPT}},
            {"id": "untagged", "action": "DELETE", "condition": {"tag_state": "UNTAGGED", "older_than": f"{UNTAGGED_SECONDS}s"}},
        ],
        opts=part.child(),
    )


def _member(
    part: Part, repository: artifactregistry.Repository, logical: str, role: str, account: pulumi.Output[str]
) -> pulumi.Resource:
    return artifactregistry.RepositoryIamMember(
        f"images-{logical}",
        repository=repository.name,
        location=repository.location,
        role=role,
        member=pulumi.Output.concat("serviceAccount:", account),
        opts=part.child(),
    )


def _by_cloud_build(  # noqa: PLR0917 - called once, with what images are made of
    part: Part,
    name: str,
    settings: Settings,
    repository: artifactregistry.Repository,
    wanted: Sequence[Recipe],
    url: pulumi.Output[str],
) -> Iterator[tuple[str, pulumi.Output[str]]]:
    """Image name -> its reference. The builder is an account of its own, which may push here, read the sources and write logs."""
    account = serviceaccount.Account(
        "builder", account_id=account_id(name, "builder"), display_name=f"Builds the images of {name}", opts=part.child()
    )
    member = pulumi.Output.concat("serviceAccount:", account.email)
    bucket = storage.Bucket(
        f"{name}-sources",
        location=settings.region,
        force_destroy=True,  # it holds archives of some 100 kB, which can be made again
        uniform_bucket_level_access=True,
        public_access_prevention="enforced",
        opts=part.child(),
    )
    rights = [
        _member(part, repository, "builder", WRITER, account.email),
        projects.IAMMember("builder-logs", project=settings.project, role=LOGS, member=member, opts=part.child()),
        storage.BucketIAMMember("builder-sources", bucket=bucket.name, role=SOURCES, member=member, opts=part.child()),
    ]
    sources = {one.sources: _archive(part, bucket, one) for one in {one.sources: one for one in wanted}.values()}
    for recipe in wanted:
        words = ["--project", settings.project, "--region", settings.region, "--cache", recipe.cache_tag]
        place = pulumi.Output.concat(url, "/", recipe.repository)
        source = sources[recipe.sources]
        made = pulumi.Output.format("--source {0}/{1} --url {2} --account {3}", source.bucket, source.name, place, account.email)
        answer = images.by_program(part, recipe, build.__name__, words, made, [*rights, source])
        yield recipe.name, pulumi.Output.concat(place, "@", answer["digest"])


def _archive(part: Part, bucket: storage.Bucket, recipe: Recipe) -> storage.BucketObject:
    path = images.packed(recipe, images.tarball, ".tar.gz")
    source = pulumi.FileAsset(str(path))
    logical = f"image-source-{recipe.repository}"
    return storage.BucketObject(logical, bucket=bucket.name, name=path.name, source=source, opts=part.child())
