"""Builds one image with Cloud Build and waits for it: what `pulumi up` runs for each image that has changed.

    python -m infra.clouds.gcp.build --project my-project --region us-central1 --source BUCKET/NAME.tar.gz \\
        --url us-central1-docker.pkg.dev/my-project/ebb-gcp/trainer --account BUILDER@... --tag default.1a2b3c4d5e6f \\
        --cache default.cache --dockerfile trainer/Dockerfile --argument BASE=...

stdout is {"digest": "sha256:..."}. The builder's rights, made seconds before, count only after a while: what is refused for want
of them is tried again for SETTLE_SECONDS. The rest is the frame's: infra/builds.py.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from infra import builds
from infra.builds import BuildError, Clock
from infra.clouds.gcp.calls import ABSENT, DENIED, INVALID, Account, Calls, Refused
from infra.commands import RequestRefused
from infra.image_lock import pinned

BUILD_SECONDS = 3600
# "Typically 2 minutes, potentially 7 minutes or longer": https://docs.cloud.google.com/iam/docs/access-change-propagation, as
# remembered; https://github.com/GoogleCloudPlatform/cluster-toolkit/pull/6237 waits 30 s for such a builder, and no longer.
SETTLE_SECONDS, RETRY_SECONDS = 420.0, 20.0
# Of FailureInfo.FailureType (https://docs.cloud.google.com/build/docs/api/reference/rest/v1/projects.builds): what a builder
# without its rights fails at.
OF_RIGHTS = ("FETCH_SOURCE_FAILED", "LOGGING_FAILURE", "PUSH_NOT_AUTHORIZED")
BUILDS, REGISTRY = "https://cloudbuild.googleapis.com/v1", "https://artifactregistry.googleapis.com/v1"
DOCKER = "gcr.io/cloud-builders/docker:latest"  # it has no versions
MACHINE = "E2_HIGHCPU_8"  # 8 vCPU; torch's image is 8 GB while it is built, so the disk is larger than the usual 100 GB
DISK_GB = "150"
RUNNING, DONE = ("PENDING", "QUEUED", "WORKING"), "SUCCESS"
# Inline cache is enough: it lacks the stage of the wheel, which takes seconds.
SCRIPT = """\
docker pull "$URL:$CACHE" || true
docker build --file "$DOCKERFILE" --cache-from "$URL:$CACHE" --build-arg BUILDKIT_INLINE_CACHE=1 $ARGUMENTS \\
  --tag "$URL:$TAG" --tag "$URL:$CACHE" .
"""


def docker() -> str:
    """The image that a build runs in, which sees the sources and may push."""
    return pinned(DOCKER)


@dataclass(frozen=True, kw_only=True)
class Request:
    """One image. `source`: bucket/name of the tar.gz. `url`: <region>-docker.pkg.dev/<project>/<repository>/<image>."""

    project: str
    region: str
    source: str
    url: str
    account: str
    tag: str
    cache: str
    dockerfile: str
    arguments: tuple[str, ...] = ()

    @property
    def builds(self) -> str:
        return f"{BUILDS}/projects/{self.project}/locations/{self.region}/builds"

    @property
    def package(self) -> str:
        repository, image = self.url.split("/")[2:]
        return f"{REGISTRY}/projects/{self.project}/locations/{self.region}/repositories/{repository}/packages/{image}"


class CloudBuild(builds.Service):
    """See infra.builds.Service."""

    def __init__(self, calls: Calls, request: Request) -> None:
        self._calls, self._request = calls, request
        self.repository, self.tag = request.url, request.tag

    @property
    def title(self) -> str:
        return f"image {self.repository.rpartition('/')[2]}:{self.tag}"

    def stored(self) -> dict[str, Any] | None:
        try:
            version = str(self._calls.get(f"{self._request.package}/tags/{self._request.tag}")["version"])
        except Refused as error:
            if error.code == ABSENT:
                return None
            raise
        return {"digest": version.rpartition("/")[2]}

    def running(self) -> str | None:
        wanted = " OR ".join(f'status="{one}"' for one in RUNNING)
        for one in self._calls.all(self._request.builds, "builds", filter=wanted):
            if f"{self._request.url}:{self._request.tag}" in (one.get("images") or []):
                return str(one["id"])
        return None

    def start(self, say: Callable[[str], None], clock: Clock) -> str:
        bucket, _, name = self._request.source.partition("/")
        variables = {
            "URL": self._request.url,
            "TAG": self._request.tag,
            "CACHE": self._request.cache,
            "DOCKERFILE": self._request.dockerfile,
        }
        variables["ARGUMENTS"] = " ".join(
            f"--build-arg {one}" for one in self._request.arguments
        )  # the shell splits it, and unquotes nothing
        step = {
            "name": docker(),
            "script": f"#!/usr/bin/env bash\nset -euo pipefail\n{SCRIPT}",
            "env": [f"{key}={value}" for key, value in variables.items()] + ["DOCKER_BUILDKIT=1"],
        }
        body = {
            "source": {"storageSource": {"bucket": bucket, "object": name}},
            "steps": [step],
            "images": [f"{self._request.url}:{self._request.tag}", f"{self._request.url}:{self._request.cache}"],
            "timeout": f"{BUILD_SECONDS}s",
            "serviceAccount": f"projects/{self._request.project}/serviceAccounts/{self._request.account}",
            "options": {"logging": "CLOUD_LOGGING_ONLY", "machineType": MACHINE, "diskSizeGb": DISK_GB},
            "tags": ["ebb"],
        }
        return str(self._calls.post(self._request.builds, body)["metadata"]["build"]["id"])

    def phase(self, number: str) -> str | None:
        found = self._calls.get(f"{self._request.builds}/{number}")
        status = str(found["status"])
        if status == DONE:
            return None
        if status not in RUNNING:
            failure = found.get("failureInfo") or {}
            why = found.get("statusDetail") or failure.get("detail") or "no reason is given"
            text = f"build {number} of {self.repository}:{self.tag}: {status.lower()}: {why}\nits log: {found.get('logUrl')}"
            raise BuildError(text, str(failure.get("type", "")))
        return status.lower()

    def stop(self, number: str) -> None:
        self._calls.post(f"{self._request.builds}/{number}:cancel", {})

    def settling(self, error: BuildError | RequestRefused, waited: float) -> float:
        """The builder, or its rights, may be too new. What the caller may not do says nothing of the builder."""
        if isinstance(error, BuildError):
            new = error.kind in OF_RIGHTS
        else:
            new = isinstance(error, Refused) and error.code in (INVALID, DENIED, ABSENT) and self._request.account in str(error)
        return RETRY_SECONDS if new and waited < SETTLE_SECONDS else 0.0


def build(calls: Calls, request: Request, say: Callable[[str], None], clock: Clock | None = None) -> dict[str, Any]:
    """The image's digest. Raises BuildError, Refused."""
    return builds.build(CloudBuild(calls, request), say, clock or Clock())


def main(arguments: Sequence[str] | None = None, calls: Calls | None = None) -> int:
    given = builds.parser(
        __spec__.name,
        "Build one image with Cloud Build and wait for it.",
        "the digest",
        project="where it is built",
        region="of the build and the registry",
        source="the tar.gz with Dockerfile and code, BUCKET/NAME",
        url="the image without its tag",
        account="the service account that builds",
        cache="the tag whose layers the build may take",
    ).parse_args(arguments)
    fields = {key: value for key, value in vars(given).items() if key != "argument"}
    request = Request(**fields, arguments=tuple(given.argument))
    return builds.main(lambda say: build(calls or Account(), request, say))


if __name__ == "__main__":
    sys.exit(main())
