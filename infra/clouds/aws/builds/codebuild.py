"""Builds one image with CodeBuild and waits for it: what `pulumi up` runs for each image that has changed.

    python -m infra.clouds.aws.builds.codebuild --region us-west-2 --project ebb-dev-images --source BUCKET/KEY.zip \\
        --repository ebb-dev/trainer --url ACCOUNT.dkr.ecr.us-west-2.amazonaws.com/ebb-dev/trainer --tag default.1a2b3c4d5e6f \\
        --cache default.cache --dockerfile trainer/Dockerfile --argument BASE=...

Progress goes to stderr; stdout is one JSON object, {"digest": "sha256:...", "compressed_mb": 123.4}. Doing it twice is harmless:
a tag that the registry has is not built again, and a build of the tag under way is joined. Ctrl-C and SIGTERM stop a build
that this run has started; after a kill the build goes on, and the next run joins it. Exit codes: 0, 1 failed, 130 interrupted.
"""

import argparse
import json
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

from infra.clouds.aws.account.calls import Account, Calls, Refused

EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 130
POLL_SECONDS, SAY_SECONDS = 5.0, 15.0
# New accounts may have one build at a time, or none, whatever the quota's default says
# (https://github.com/awslabs/landing-zone-accelerator-on-aws/issues/249, control_tower_account_factory#179). A build ends within
# an hour (images.BUILD_MINUTES), and a stack seldom has more than three images.
FULL, QUOTA = "AccountLimitExceededException", "Concurrently running builds for Linux/Medium environment"
TURN_SECONDS, TURN_POLL_SECONDS, SAY_WAITING_SECONDS = 4 * 3600, 20.0, 600.0
TAIL_LINES = 40
WIDTH = 120
MB = 1_000_000
# Inline cache is enough: it lacks the stage of the wheel, which takes seconds.
# Without attestations the digest is the image's own, not an index's.
BUILDSPEC = """\
version: 0.2
phases:
  pre_build:
    commands:
      - aws ecr get-login-password --region "$AWS_DEFAULT_REGION" | docker login --username AWS --password-stdin "${URL%%/*}"
  build:
    commands:
      - >-
        docker buildx build --progress=plain --platform linux/amd64 --provenance=false --sbom=false
        --file "$DOCKERFILE" $BUILD_ARGUMENTS
        --cache-from "type=registry,ref=$URL:$CACHE" --cache-to type=inline
        --tag "$URL:$TAG" --tag "$URL:$CACHE" --push .
"""
_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x1f]")


class BuildError(Exception):
    """The image was not built; the text ends with the build's last lines."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One image. `source`: bucket/key of the zip."""

    project: str
    source: str
    repository: str
    url: str
    tag: str
    cache: str
    dockerfile: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Time, and how to let it pass."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def build(calls: Calls, request: Request, say: Callable[[str], None], clock: Clock | None = None) -> dict[str, Any]:
    """The image's digest and compressed size. Raises BuildError, Refused."""
    clock = clock or Clock()
    found = _image(calls, request)
    if found is not None:
        say(f"image {request.repository}:{request.tag} is in the registry already")
        return found
    running = _running(calls, request)
    number = running or _start_in_turn(calls, request, say, clock)
    say(f"image {request.repository}:{request.tag}: {'joining' if running else 'started'} build {number}")
    try:
        _await(calls, number, request, say, clock)
    except KeyboardInterrupt:
        if not running:
            calls("codebuild", "stop_build", id=number)
            say(f"interrupted: build {number} is stopped")
        raise
    found = _image(calls, request)
    if found is None:
        raise BuildError(f"build {number} succeeded, but {request.repository} has no tag {request.tag}: was it deleted just now?")
    say(f"image {request.repository}:{request.tag}: {found['compressed_mb']} MB compressed, {found['digest']}")
    return found


def _image(calls: Calls, request: Request) -> dict[str, Any] | None:
    try:
        answer = calls("ecr", "describe_images", repositoryName=request.repository, imageIds=[{"imageTag": request.tag}])
    except Refused as error:
        if error.code == "ImageNotFoundException":
            return None
        raise
    image = answer["imageDetails"][0]
    return {"digest": image["imageDigest"], "compressed_mb": round(image["imageSizeInBytes"] / MB, 1)}


def _running(calls: Calls, request: Request) -> str | None:
    """The newest build of the same tag that has not ended, of the project's last hundred."""
    numbers = calls("codebuild", "list_builds_for_project", projectName=request.project, sortOrder="DESCENDING").get("ids", [])
    builds = calls("codebuild", "batch_get_builds", ids=numbers[:100])["builds"] if numbers else []
    for one in builds:
        variables = {each["name"]: each["value"] for each in one["environment"]["environmentVariables"]}
        if one["buildStatus"] == "IN_PROGRESS" and variables.get("TAG") == request.tag:
            return str(one["id"])
    return None


def _start_in_turn(calls: Calls, request: Request, say: Callable[[str], None], clock: Clock) -> str:
    """Start the build once the account may have another. Raises BuildError if it may have none, or has too many for hours."""
    image, began, said = f"image {request.repository}:{request.tag}", clock.now(), 0.0
    while True:
        try:
            return _start(calls, request)
        except Refused as error:
            if error.code != FULL:
                raise
            most = re.search(r"more than (\d+) builds", str(error))
        waited = clock.now() - began
        if most and most[1] == "0":
            raise BuildError(
                f"{image}: this account may run no build in CodeBuild (quota {QUOTA} is 0, as in some new accounts): raise it in "
                "Service Quotas or ask AWS Support, or build here: aws.images.build: docker"
            )
        if waited >= TURN_SECONDS:
            raise BuildError(
                f"{image}: no turn within {TURN_SECONDS // 3600} hours: other builds take all that the account may have"
            )
        if not waited:
            may = f"may have {most[1]} at a time" if most else "may have no more"
            wider = f"a larger quota lets them run at once (Service Quotas, CodeBuild, {QUOTA})"
            say(f"{image}: waiting: the account {may}, and others run; {wider}")
        elif waited - said >= SAY_WAITING_SECONDS:
            said = waited
            say(f"{image}: waiting for other builds, {waited:.0f} s")
        clock.sleep(TURN_POLL_SECONDS)


def _start(calls: Calls, request: Request) -> str:
    variables = {
        "URL": request.url,
        "TAG": request.tag,
        "CACHE": request.cache,
        "DOCKERFILE": request.dockerfile,
        "BUILD_ARGUMENTS": " ".join(
            f"--build-arg {one}" for one in request.arguments
        ),  # the shell splits it, and unquotes nothing
    }
    started = calls(
        "codebuild",
        "start_build",
        projectName=request.project,
        sourceTypeOverride="S3",
        sourceLocationOverride=request.source,
        environmentVariablesOverride=[{"name": name, "value": value, "type": "PLAINTEXT"} for name, value in variables.items()],
    )
    return str(started["build"]["id"])


def _await(calls: Calls, number: str, request: Request, say: Callable[[str], None], clock: Clock) -> None:
    began, said = clock.now(), clock.now()
    while True:
        found = calls("codebuild", "batch_get_builds", ids=[number])["builds"][0]
        status = found["buildStatus"]
        if status == "SUCCEEDED":
            return
        if status != "IN_PROGRESS":
            raise BuildError(_failure(calls, number, request, found))
        if clock.now() - said >= SAY_SECONDS:
            said = clock.now()
            last = "".join(_log(calls, found, 1))
            phase = found.get("currentPhase", "SUBMITTED").lower().replace("_", " ")
            say(f"image {request.repository}:{request.tag}: {phase}, {said - began:.0f} s  {last}"[:WIDTH].rstrip())
        clock.sleep(POLL_SECONDS)


def _failure(calls: Calls, number: str, request: Request, found: dict[str, Any]) -> str:
    phases = [
        f"{one['phaseType'].lower()}: {one['phaseStatus'].lower()}" for one in found.get("phases", []) if one.get("phaseStatus")
    ]
    bad = [phase for phase in phases if not phase.endswith("succeeded")]
    link = found.get("logs", {}).get("deepLink", "")
    lines = [
        f"image {request.repository}:{request.tag}: build {number} {found['buildStatus'].lower()} ({', '.join(bad) or 'at once'})"
    ]
    lines += [f"  | {line}" for line in _log(calls, found, TAIL_LINES)]
    return "\n".join([*lines, f"the whole log: {link}" if link else "there is no log"])


def _log(calls: Calls, found: dict[str, Any], count: int) -> list[str]:
    """The build's last lines that are not empty. None while the log is not there yet."""
    logs = found.get("logs", {})
    if not logs.get("groupName") or not logs.get("streamName"):
        return []
    try:
        answer = calls(
            "logs", "get_log_events",
            logGroupName=logs["groupName"], logStreamName=logs["streamName"], limit=3 * count, startFromHead=False,
        )  # fmt: skip
    except Refused:  # progress is a courtesy: the build's own status decides
        return []
    lines = [_CONTROL.sub("", event["message"]).strip() for event in answer["events"]]
    return [line for line in lines if line][-count:]


def main(arguments: Sequence[str] | None = None, calls: Calls | None = None) -> int:
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    request = Request(
        project=given.project, source=given.source, repository=given.repository, url=given.url, tag=given.tag,
        cache=given.cache, dockerfile=given.dockerfile, arguments=tuple(given.argument),
    )  # fmt: skip
    try:
        found = build(calls or Account(given.region), request, lambda words: print(words, file=sys.stderr, flush=True))
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
        prog="python -m infra.clouds.aws.builds.codebuild",
        description="Build one image with CodeBuild and wait for it. `pulumi up` runs this; by hand it repeats a failed build.",
        epilog="stdout is one JSON object with digest and compressed_mb; a tag that the registry has already is not built again.",
    )
    parser.add_argument("--region", required=True)
    parser.add_argument("--project", required=True, help="the CodeBuild project that `up` has made")
    parser.add_argument("--source", required=True, metavar="BUCKET/KEY", help="the zip with Dockerfile and code")
    parser.add_argument("--repository", required=True, help="the ECR repository's name")
    parser.add_argument("--url", required=True, help="the ECR repository's address")
    parser.add_argument("--tag", required=True, help="of the image: name.hash of its sources")
    parser.add_argument("--cache", required=True, metavar="TAG", help="the tag whose layers the build may take")
    parser.add_argument("--dockerfile", required=True, help="its path in the zip")
    parser.add_argument("--argument", action="append", default=[], metavar="KEY=VALUE", help="a build argument; may be repeated")
    return parser


if __name__ == "__main__":
    sys.exit(main())
