"""Builds one image with CodeBuild and waits for it: what `pulumi up` runs for each image that has changed.

    python -m infra.clouds.aws.builds.codebuild --region us-west-2 --project ebb-dev-images --source BUCKET/KEY.zip \\
        --repository ebb-dev/trainer --url ACCOUNT.dkr.ecr.us-west-2.amazonaws.com/ebb-dev/trainer --tag default.1a2b3c4d5e6f \\
        --cache default.cache --dockerfile trainer/Dockerfile --argument BASE=...

stdout is {"digest": "sha256:...", "compressed_mb": 123.4}. The rest is the frame's: infra/builds.py.
"""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from infra import builds
from infra.builds import MB, BuildError, Clock
from infra.clouds.aws.account.calls import Account, Calls, Refused

# New accounts may have one build at a time, or none, whatever the quota's default says
# (https://github.com/awslabs/landing-zone-accelerator-on-aws/issues/249, control_tower_account_factory#179). A build ends within
# an hour (images.BUILD_MINUTES), and a stack seldom has more than three images.
FULL, QUOTA = "AccountLimitExceededException", "Concurrently running builds for Linux/Medium environment"
TURN_SECONDS, TURN_POLL_SECONDS, SAY_WAITING_SECONDS = 4 * 3600, 20.0, 600.0
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


class CodeBuild(builds.Service):
    """See infra.builds.Service."""

    stopped = "stopped"

    def __init__(self, calls: Calls, request: Request) -> None:
        self._calls, self._request = calls, request
        self.repository, self.tag = request.repository, request.tag
        self._found: dict[str, Any] = {}  # the build, as it was last asked for

    def stored(self) -> dict[str, Any] | None:
        try:
            answer = self._calls(
                "ecr", "describe_images", repositoryName=self._request.repository, imageIds=[{"imageTag": self._request.tag}]
            )
        except Refused as error:
            if error.code == "ImageNotFoundException":
                return None
            raise
        image = answer["imageDetails"][0]
        return {"digest": image["imageDigest"], "compressed_mb": round(image["imageSizeInBytes"] / MB, 1)}

    def running(self) -> str | None:
        """The newest build of the same tag that has not ended, of the project's last hundred."""
        numbers = self._calls(
            "codebuild", "list_builds_for_project", projectName=self._request.project, sortOrder="DESCENDING"
        ).get("ids", [])
        listed = self._calls("codebuild", "batch_get_builds", ids=numbers[:100])["builds"] if numbers else []
        for one in listed:
            variables = {each["name"]: each["value"] for each in one["environment"]["environmentVariables"]}
            if one["buildStatus"] == "IN_PROGRESS" and variables.get("TAG") == self._request.tag:
                return str(one["id"])
        return None

    def start(self, say: Callable[[str], None], clock: Clock) -> str:
        """Start the build once the account may have another. Raises BuildError if it may have none, or has too many for hours."""
        image, began, said = self.title, clock.now(), 0.0
        while True:
            try:
                return self._start()
            except Refused as error:
                if error.code != FULL:
                    raise
                most = re.search(r"more than (\d+) builds", str(error))
            waited = clock.now() - began
            if most and most[1] == "0":
                raise BuildError(
                    f"{image}: this account may run no build in CodeBuild (quota {QUOTA} is 0, as in some new accounts): raise "
                    "it in Service Quotas or ask AWS Support, or build here: aws.images.build: docker"
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

    def _start(self) -> str:
        variables = {
            "URL": self._request.url,
            "TAG": self._request.tag,
            "CACHE": self._request.cache,
            "DOCKERFILE": self._request.dockerfile,
            "BUILD_ARGUMENTS": " ".join(
                f"--build-arg {one}" for one in self._request.arguments
            ),  # the shell splits it, and unquotes nothing
        }
        started = self._calls(
            "codebuild",
            "start_build",
            projectName=self._request.project,
            sourceTypeOverride="S3",
            sourceLocationOverride=self._request.source,
            environmentVariablesOverride=[
                {"name": name, "value": value, "type": "PLAINTEXT"} for name, value in variables.items()
            ],
        )
        return str(started["build"]["id"])

    def phase(self, number: str) -> str | None:
        self._found = self._calls("codebuild", "batch_get_builds", ids=[number])["builds"][0]
        status = self._found["buildStatus"]
        if status == "SUCCEEDED":
            return None
        if status != "IN_PROGRESS":
            raise BuildError(self._failure(number))
        return str(self._found.get("currentPhase", "SUBMITTED")).lower().replace("_", " ")

    def stop(self, number: str) -> None:
        self._calls("codebuild", "stop_build", id=number)

    def _failure(self, number: str) -> str:
        found = self._found
        phases = [
            f"{one['phaseType'].lower()}: {one['phaseStatus'].lower()}"
            for one in found.get("phases", [])
            if one.get("phaseStatus")
        ]
        bad = [phase for phase in phases if not phase.endswith("succeeded")]
        link = found.get("logs", {}).get("deepLink", "")
        lines = [f"{self.title}: build {number} {found['buildStatus'].lower()} ({', '.join(bad) or 'at once'})"]
        lines += [f"  | {line}" for line in self.log(number, builds.TAIL_LINES)]
        return "\n".join([*lines, f"the whole log: {link}" if link else "there is no log"])

    def log(self, number: str, count: int) -> list[str]:
        logs = self._found.get("logs", {})
        if not logs.get("groupName") or not logs.get("streamName"):
            return []
        try:
            answer = self._calls(
                "logs", "get_log_events",
                logGroupName=logs["groupName"], logStreamName=logs["streamName"], limit=3 * count, startFromHead=False,
            )  # fmt: skip
        except Refused:  # progress is a courtesy: the build's own status decides
            return []
        return builds.tail([event["message"] for event in answer["events"]], count)


def build(calls: Calls, request: Request, say: Callable[[str], None], clock: Clock | None = None) -> dict[str, Any]:
    """The image's digest and compressed size. Raises BuildError, Refused."""
    return builds.build(CodeBuild(calls, request), say, clock or Clock())


def main(arguments: Sequence[str] | None = None, calls: Calls | None = None) -> int:
    given = builds.parser(
        __spec__.name,
        "Build one image with CodeBuild and wait for it.",
        "digest and compressed_mb",
        region="of the project and the registry",
        project="the CodeBuild project that `up` has made",
        source="the zip with Dockerfile and code, BUCKET/KEY",
        repository="the ECR repository's name",
        url="the ECR repository's address",
        cache="the tag whose layers the build may take",
    ).parse_args(arguments)
    fields = {key: value for key, value in vars(given).items() if key not in ("region", "argument")}
    request = Request(**fields, arguments=tuple(given.argument))
    return builds.main(lambda say: build(calls or Account(given.region), request, say))


if __name__ == "__main__":
    sys.exit(main())
