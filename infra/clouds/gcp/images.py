"""The images that pods run: an Artifact Registry repository, and the builds of what is in it, inside `up`.

    made = declare(part, "ebb-gcp", stack, settings, control)
    made.controller          # REGION-docker.pkg.dev/PROJECT/ebb-gcp/controller@sha256:...

An image is tagged with a hash of its sources (infra/recipes.py); a build runs only when that hash is new: by Cloud Build from a
tar.gz in a bucket (build.py is what `up` runs and waits for), or by the Docker of this machine, which must know the registry
(`gcloud auth configure-docker`). etcd's image is the public one of workloads/manifests.
"""

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pulumi
import pulumi_command as command
import pulumi_docker_build as docker_build
import pulumi_gcp as gcp

from infra import cloud, manifests, recipes
from infra.clouds.gcp import build
from infra.clouds.gcp.cluster import account_id
from infra.clouds.gcp.settings import Settings
from infra.config import ROOT, Stack
from infra.part import Part
from infra.recipes import CONTROLLER, TRAINER, Recipe

# Docker Hub refuses many anonymous pulls from one address. Cloud Build asks Google's cache of it first, by itself; naming that
# cache (mirror.gcr.io) here would fail whenever it does not hold the image just then
# (https://docs.cloud.google.com/artifact-registry/docs/pull-cached-dockerhub-images, stored copies, read 2026-11-22).
BASE = "docker.io/library/python:3.11-slim-bookworm"
KEPT, UNTAGGED_SECONDS = 10, 7 * 24 * 3600  # ten builds back is further than any job runs
READER, WRITER = "roles/artifactregistry.reader", "roles/artifactregistry.writer"
LOGS, SOURCES = "roles/logging.logWriter", "roles/storage.objectViewer"


def declare(part: Part, name: str, stack: Stack, settings: Settings, machines: pulumi.Output[str]) -> cloud.Images:
    """`machines`: the service account of who fetches images."""
    legacy = _public("ebb-etcd-legacy", manifests.LEGACY) if stack.legacy_rendezvous else None
    given = settings.images
    if given.build == "none":
        trainers = {key: pulumi.Output.from_input(reference) for key, reference in given.trainers.items()}
        controller = pulumi.Output.from_input(given.controller or "")
        return cloud.Images(controller=controller, trainers=trainers, etcd=_public("ebb-etcd"), legacy_etcd=legacy)
    wanted = recipes.recipes(stack, BASE)
    repository = _repository(part, name, settings, [one.name for one in wanted])
    _member(part, repository, "machines", READER, machines)
    url = pulumi.Output.concat(f"{settings.region}-docker.pkg.dev/{settings.project}/", repository.repository_id)
    if given.build == "docker":
        built = {one.name: _by_docker(part, one, pulumi.Output.concat(url, "/", one.repository)) for one in wanted}
    else:
        built = dict(_by_cloud_build(part, name, settings, repository, wanted, url))
    return cloud.Images(
        controller=built[CONTROLLER],
        trainers={one.name: built[one.name] for one in wanted if one.repository == TRAINER},
        etcd=_public("ebb-etcd"),
        legacy_etcd=legacy,
    )


def _public(name: str, folder: Path = manifests.FOLDER) -> pulumi.Output[str]:
    return pulumi.Output.from_input(manifests.pinned(name, folder))


def _repository(part: Part, name: str, settings: Settings, names: Sequence[str]) -> gcp.artifactregistry.Repository:
    """Each name has its own allowance: builds of one trainer shall not push out the images of another, which changes seldom."""
    newest = [
        {"id": f"keep-{one}", "action": "KEEP", "condition": {"tag_state": "TAGGED", "tag_prefixes": [f"{one}."]}}
        for one in names
    ]
    return gcp.artifactregistry.Repository(
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
    part: Part, repository: gcp.artifactregistry.Repository, logical: str, role: str, account: pulumi.Output[str]
) -> pulumi.Resource:
    return gcp.artifactregistry.RepositoryIamMember(
        f"images-{logical}",
        repository=repository.name,
        location=repository.location,
        role=role,
        member=pulumi.Output.concat("serviceAccount:", account),
        opts=part.child(),
    )


def _by_docker(part: Part, recipe: Recipe, url: pulumi.Output[str]) -> pulumi.Output[str]:
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
        opts=part.child(retain_on_delete=True),  # the repository takes its images along
    )
    return pulumi.Output.concat(url, "@", image.digest)


def _by_cloud_build(  # noqa: PLR0917 - called once, with what images are made of
    part: Part,
    name: str,
    settings: Settings,
    repository: gcp.artifactregistry.Repository,
    wanted: Sequence[Recipe],
    url: pulumi.Output[str],
) -> Iterator[tuple[str, pulumi.Output[str]]]:
    """Image name -> its reference. The builder is an account of its own, which may push here, read the sources and write logs."""
    account = gcp.serviceaccount.Account(
        "builder", account_id=account_id(name, "builder"), display_name=f"Builds the images of {name}", opts=part.child()
    )
    member = pulumi.Output.concat("serviceAccount:", account.email)
    bucket = gcp.storage.Bucket(
        f"{name}-sources",
        location=settings.region,
        force_destroy=True,  # it holds archives of some 100 kB, which can be made again
        uniform_bucket_level_access=True,
        public_access_prevention="enforced",
        opts=part.child(),
    )
    rights = [
        _member(part, repository, "builder", WRITER, account.email),
        gcp.projects.IAMMember("builder-logs", project=settings.project, role=LOGS, member=member, opts=part.child()),
        gcp.storage.BucketIAMMember("builder-sources", bucket=bucket.name, role=SOURCES, member=member, opts=part.child()),
    ]
    sources = {folder: _archive(part, bucket, folder) for folder in dict.fromkeys(one.folder for one in wanted)}
    for recipe in wanted:
        words = [_python(), "-m", build.__name__, "--project", settings.project, "--region", settings.region]
        words += ["--tag", recipe.tag, "--cache", recipe.cache_tag, "--dockerfile", recipe.dockerfile]
        words += [word for key, value in recipe.arguments.items() for word in ("--argument", f"{key}={value}")]
        place = pulumi.Output.concat(url, "/", recipe.repository)
        source = sources[recipe.folder]
        made = pulumi.Output.format(" --source {0}/{1} --url {2} --account {3}", source.bucket, source.name, place, account.email)
        ran = command.local.Command(
            f"image-{recipe.name}",
            create=pulumi.Output.concat(f"exec {shlex.join(words)}", made),
            triggers=[recipe.tag],
            add_previous_output_in_env=False,
            logging=command.local.Logging.STDERR,
            opts=part.child(depends_on=[*rights, source]),
        )
        answer = pulumi.Output.json_loads(ran.stdout)
        yield recipe.name, pulumi.Output.concat(place, "@", answer["digest"])


def _archive(part: Part, bucket: gcp.storage.Bucket, folder: str) -> gcp.storage.BucketObject:
    """Its name changes with its content, so that a build never reads what another `up` is writing."""
    content = recipes.tarball(ROOT, folder)
    path = ROOT / "build" / "image-sources" / f"{folder}-{recipes.name_of(content)}.tar.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    for former in set(path.parent.glob(f"{folder}-*.tar.gz")) - {path}:
        former.unlink(missing_ok=True)
    path.write_bytes(content)
    return gcp.storage.BucketObject(
        f"image-source-{folder}", bucket=bucket.name, name=path.name, source=pulumi.FileAsset(str(path)), opts=part.child()
    )


def _python() -> str:
    """This Python, by a path that is the same in every checkout that has one: it is an input, and a new one is an update."""
    here = Path(sys.executable)
    return str(here.relative_to(ROOT)) if here.is_relative_to(ROOT) else str(here)
