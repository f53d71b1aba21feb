"""Builds one image with Cloud Build and waits for it: what `pulumi up` runs for each image that has changed.

    python -m infra.clouds.gcp.build --project my-project --region us-central1 --source BUCKET/NAME.tar.gz \\
        --url us-central1-docker.pkg.dev/my-project/ebb-gcp/trainer --account BUILDER@... --tag default.1a2b3c4d5e6f \\
        --cache default.cache --dockerfile trainer/Dockerfile --argument BASE=...

Progress goes to stderr; stdout is one JSON object, {"digest": "sha256:..."}. Doing it twice is harmless: a tag that the registry
has is not built again, and a build of the tag under way is joined. The builder's rights, made seconds before, count only after a
while: what is refused for want of them is tried again for SETTLE_SECONDS. Ctrl-C and SIGTERM cancel a build of this run's own;
after a kill the build goes on, and the next run joins it. Exit codes: 0, 1 failed, 130 interrupted.
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

from infra.clouds.gcp.calls import ABSENT, DENIED, INVALID, Account, Calls, Refused

EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 130
POLL_SECONDS, SAY_SECONDS, BUILD_SECONDS = 5.0, 15.0, 3600
# "Typically 2 minutes, potentially 7 minutes or longer": https://docs.cloud.google.com/iam/docs/access-change-propagation, as
# remembered; https://github.com/GoogleCloudPlatform/cluster-toolkit/pull/6237 waits 30 s for such a builder, and no longer.
SETTLE_SECONDS, RETRY_SECONDS = 420.0, 20.0
# Of FailureInfo.FailureType (https://docs.cloud.google.com/build/docs/api/reference/rest/v1/projects.builds): what a builder
# without its rights fails at.
OF_RIGHTS = ("FETCH_SOURCE_FAILED", "LOGGING_FAILURE", "PUSH_NOT_AUTHORIZED")
BUILDS, REGISTRY = "https://cloudbuild.googleapis.com/v1", "https://artifactregistry.googleapis.com/v1"
DOCKER = "gcr.io/cloud-builders/docker"
MACHINE = "E2_HIGHCPU_8"  # 8 vCPU; torch's image is 8 GB while it is built, so the disk is larger than the usual 100 GB
DISK_GB = "150"
RUNNING, DONE = ("PENDING", "QUEUED", "WORKING"), "SUCCESS"
# Inline cache is enough: it lacks the stage of the wheel, which takes seconds.
SCRIPT = """\
docker pull "$URL:$CACHE" || true
docker build --file "$DOCKERFILE" --cache-from "$URL:$CACHE" --build-arg BUILDKIT_INLINE_CACHE=1 $ARGUMENTS \\
  --tag "$URL:$TAG" --tag "$URL:$CACHE" .
"""


class BuildError(Exception):
    """The image was not built; the text says where its log is. `kind`: Google's word for the failure."""

    def __init__(self, words: str, kind: str = "") -> None:
        super().__init__(words)
        self.kind = kind


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


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Time, and how to let it pass."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def build(calls: Calls, request: Request, say: Callable[[str], None], clock: Clock | None = None) -> dict[str, Any]:
    """The image's digest. Raises BuildError, Refused."""
    clock, name = clock or Clock(), f"image {request.url.rpartition('/')[2]}:{request.tag}"
    found = _image(calls, request)
    if found is not None:
        say(f"{name} is in the registry already")
        return found
    began, running = clock.now(), _running(calls, request)
    while True:
        try:
            number = _build_once(calls, request, running, lambda words: say(f"{name}: {words}"), clock)
            break
        except (BuildError, Refused) as error:
            if not _is_of_rights(error, request) or clock.now() - began >= SETTLE_SECONDS:
                raise
            say(f"{name}: the builder's rights do not count yet, trying again in {RETRY_SECONDS:.0f} s ({error})")
            clock.sleep(RETRY_SECONDS)
            running = None
    found = _image(calls, request)
    if found is None:
        raise BuildError(f"build {number} succeeded, but {request.url} has no tag {request.tag}: was it deleted just now?")
    say(f"{name}: {found['digest']}")
    return found


def _build_once(calls: Calls, request: Request, running: str | None, say: Callable[[str], None], clock: Clock) -> str:
    """The number of a build that has succeeded: that under way, or a new one."""
    number = running or _start(calls, request)
    say(f"{'joining' if running else 'started'} build {number}")
    try:
        _await(calls, number, request, say, clock)
    except KeyboardInterrupt:
        if not running:
            calls.post(f"{request.builds}/{number}:cancel", {})
            say(f"interrupted: build {number} is cancelled")
        raise
    return number


def _is_of_rights(error: BuildError | Refused, request: Request) -> bool:
    """True if it may be that the builder, or its rights, are too new. What the caller may not do says nothing of the builder."""
    if isinstance(error, BuildError):
        return error.kind in OF_RIGHTS
    return error.code in (INVALID, DENIED, ABSENT) and request.account in str(error)


def _image(calls: Calls, request: Request) -> dict[str, Any] | None:
    try:
        version = str(calls.get(f"{request.package}/tags/{request.tag}")["version"])
    except Refused as error:
        if error.code == ABSENT:
            return None
        raise
    return {"digest": version.rpartition("/")[2]}


def _running(calls: Calls, request: Request) -> str | None:
    """A build of the same image that has not ended."""
    wanted = " OR ".join(f'status="{one}"' for one in RUNNING)
    for one in calls.all(request.builds, "builds", filter=wanted):
        if f"{request.url}:{request.tag}" in (one.get("images") or []):
            return str(one["id"])
    return None


def _start(calls: Calls, request: Request) -> str:
    bucket, _, name = request.source.partition("/")
    variables = {"URL": request.url, "TAG": request.tag, "CACHE": request.cache, "DOCKERFILE": request.dockerfile}
    variables["ARGUMENTS"] = " ".join(
        f"--build-arg {one}" for one in request.arguments
    )  # the shell splits it, and unquotes nothing
    step = {
        "name": DOCKER,
        "script": f"#!/usr/bin/env bash\nset -euo pipefail\n{SCRIPT}",
        "env": [f"{key}={value}" for key, value in variables.items()] + ["DOCKER_BUILDKIT=1"],
    }
    body = {
        "source": {"storageSource": {"bucket": bucket, "object": name}},
        "steps": [step],
        "images": [f"{request.url}:{request.tag}", f"{request.url}:{request.cache}"],
        "timeout": f"{BUILD_SECONDS}s",
        "serviceAccount": f"projects/{request.project}/serviceAccounts/{request.account}",
        "options": {"logging": "CLOUD_LOGGING_ONLY", "machineType": MACHINE, "diskSizeGb": DISK_GB},
        "tags": ["ebb"],
    }
    return str(calls.post(request.builds, body)["metadata"]["build"]["id"])


def _await(calls: Calls, number: str, request: Request, say: Callable[[str], None], clock: Clock) -> None:
    began = said = clock.now()
    while True:
        found = calls.get(f"{request.builds}/{number}")
        status = str(found["status"])
        if status == DONE:
            return
        if status not in RUNNING:
            failure = found.get("failureInfo") or {}
            why = found.get("statusDetail") or failure.get("detail") or "no reason is given"
            text = f"build {number} of {request.url}:{request.tag}: {status.lower()}: {why}\nits log: {found.get('logUrl')}"
            raise BuildError(text, str(failure.get("type", "")))
        if clock.now() - said >= SAY_SECONDS:
            said = clock.now()
            say(f"{status.lower()}, {said - began:.0f} s")
        clock.sleep(POLL_SECONDS)


def main(arguments: Sequence[str] | None = None, calls: Calls | None = None) -> int:
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    fields = {key: value for key, value in vars(given).items() if key != "argument"}
    request = Request(**fields, arguments=tuple(given.argument))
    try:
        found = build(calls or Account(), request, lambda words: print(words, file=sys.stderr, flush=True))
    except (BuildError, Refused) as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    print(json.dumps(found))
    return EXIT_DONE


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m infra.clouds.gcp.build",
        description="Build one image with Cloud Build and wait for it. `pulumi up` runs this; by hand it repeats a failed build.",
        epilog="stdout is one JSON object with the digest; a tag that the registry has already is not built again.",
    )
    parser.add_argument("--project", required=True)
    parser.add_argument("--region", required=True)
    parser.add_argument("--source", required=True, metavar="BUCKET/NAME", help="the tar.gz with Dockerfile and code")
    parser.add_argument("--url", required=True, help="the image without its tag")
    parser.add_argument("--account", required=True, help="the service account that builds")
    parser.add_argument("--tag", required=True, help="of the image: name.hash of its sources")
    parser.add_argument("--cache", required=True, metavar="TAG", help="the tag whose layers the build may take")
    parser.add_argument("--dockerfile", required=True, help="its path in the archive")
    parser.add_argument("--argument", action="append", default=[], metavar="KEY=VALUE", help="a build argument; may be repeated")
    return parser


if __name__ == "__main__":
    sys.exit(main())
