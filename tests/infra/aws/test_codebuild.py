"""The runner of builds: starts or joins one, waits with progress, tells a failure with its log, and stops what it started."""

import json
from typing import Any

import pytest

from infra.builds import BuildError, Clock
from infra.clouds.aws.account.calls import Refused
from infra.clouds.aws.builds import codebuild
from infra.clouds.aws.builds.codebuild import Request
from tests.infra.aws.fake_calls import FakeCalls

REQUEST = Request(
    project="ebb-dev-images", source="bucket/trainer-1.zip", repository="ebb-dev/trainer",
    url="1.dkr.ecr.us-west-2.amazonaws.com/ebb-dev/trainer", tag="default.abc", cache="default.cache",
    dockerfile="trainer/Dockerfile", arguments=("BASE=public.ecr.aws/python", "EFA=1"),
)  # fmt: skip
DIGEST = "sha256:" + "a" * 64
STORED = {"imageDetails": [{"imageDigest": DIGEST, "imageSizeInBytes": 3_456_789_012}]}
ABSENT = Refused("ImageNotFoundException", "no such image")
LOGS = {"groupName": "/aws/codebuild/ebb-dev-images", "streamName": "one", "deepLink": "https://console/log"}


class World:
    """CodeBuild and ECR: a build takes `seconds`, then the image is there."""

    def __init__(
        self,
        *,
        seconds: float = 40.0,
        ends: str = "SUCCEEDED",
        stored: bool = False,
        running: str = "",
        full: float = 0,
        most: int = 1,
    ) -> None:
        self.time, self.ends_at, self.ends, self.stored = 0.0, full + seconds, ends, stored
        self.full_until, self.most = full, most
        self.others = [
            _build("p:other", "IN_PROGRESS", "default.zzz"),
            *([_build("p:old", "IN_PROGRESS", running)] if running else []),
        ]
        self.said: list[str] = []
        self.interrupt_at = float("inf")
        self.calls = FakeCalls({
            ("ecr", "describe_images"): lambda _: STORED if self.stored else ABSENT,
            ("codebuild", "list_builds_for_project"): lambda _: {"ids": [one["id"] for one in self.others]},
            ("codebuild", "batch_get_builds"): self._builds,
            ("codebuild", "start_build"): self._start,
            ("codebuild", "stop_build"): {"build": {"id": "p:new"}},
            ("logs", "get_log_events"): lambda asked: {
                "events": [{"message": f"\x1b[1m#{number} line\x1b[0m\n"} for number in range(99)] + [{"message": "\n"}]
            },
        })  # fmt: skip

    def _start(self, asked: dict[str, Any]) -> Any:
        """Refused while builds of others take all that the account may have."""
        if self.time < self.full_until:
            said = f"codebuild start_build: {codebuild.FULL}: Cannot have more than {self.most} builds in queue for the account"
            return Refused(codebuild.FULL, said)
        return {"build": {"id": "p:new"}}

    def _builds(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["ids"] == [one["id"] for one in self.others]:
            return {"builds": self.others}
        over = self.time >= self.ends_at
        self.stored = self.stored or (over and self.ends == "SUCCEEDED")
        return {"builds": [_build(asked["ids"][0], self.ends if over else "IN_PROGRESS", REQUEST.tag)]}

    def _sleep(self, seconds: float) -> None:
        self.time += seconds
        if self.time >= self.interrupt_at:
            raise KeyboardInterrupt

    def build(self) -> dict[str, Any]:
        clock = Clock(now=lambda: self.time, sleep=self._sleep)
        return codebuild.build(self.calls, REQUEST, self.said.append, clock)


def _build(number: str, status: str, tag: str) -> dict[str, Any]:
    return {
        "id": number,
        "buildStatus": status,
        "currentPhase": "BUILD",
        "phases": [{"phaseType": "PRE_BUILD", "phaseStatus": "SUCCEEDED"}, {"phaseType": "BUILD", "phaseStatus": status}],
        "environment": {
            "type": "LINUX_CONTAINER",
            "image": "i",
            "computeType": "c",
            "environmentVariables": [{"name": "TAG", "value": tag}],
        },
        "logs": LOGS,
    }


def test_a_tag_that_the_registry_has_is_not_built() -> None:
    world = World(stored=True)
    assert world.build() == {"digest": DIGEST, "compressed_mb": 3456.8}
    assert [operation for _, operation, _ in world.calls.seen] == ["describe_images"]


def test_a_new_tag_is_built_and_awaited_with_progress() -> None:
    world = World(seconds=40)
    assert world.build() == {"digest": DIGEST, "compressed_mb": 3456.8}
    (started,) = world.calls.asked("codebuild", "start_build")
    assert (started["projectName"], started["sourceLocationOverride"]) == ("ebb-dev-images", "bucket/trainer-1.zip")
    assert {one["name"]: one["value"] for one in started["environmentVariablesOverride"]} == {
        "URL": REQUEST.url, "TAG": "default.abc", "CACHE": "default.cache", "DOCKERFILE": "trainer/Dockerfile",
        "BUILD_ARGUMENTS": "--build-arg BASE=public.ecr.aws/python --build-arg EFA=1",
    }  # fmt: skip
    assert world.said == [
        "image ebb-dev/trainer:default.abc: started build p:new",
        "image ebb-dev/trainer:default.abc: build, 15 s  #98 line",
        "image ebb-dev/trainer:default.abc: build, 30 s  #98 line",
        f"image ebb-dev/trainer:default.abc: 3456.8 MB compressed, {DIGEST}",
    ]


def test_a_build_that_is_under_way_is_joined() -> None:
    world = World(running=REQUEST.tag)
    world.build()
    assert not world.calls.asked("codebuild", "start_build")
    assert world.said[0] == "image ebb-dev/trainer:default.abc: joining build p:old"


def test_a_build_waits_while_the_account_may_have_no_more() -> None:
    """New accounts may run one build at a time, and a stack has three images."""
    world = World(full=1300)
    assert world.build()["digest"] == DIGEST
    assert world.said[0] == (
        "image ebb-dev/trainer:default.abc: waiting: the account may have 1 at a time, and others run; a larger quota lets "
        "them run at once (Service Quotas, CodeBuild, Concurrently running builds for Linux/Medium environment)"
    )
    assert world.said[1] == "image ebb-dev/trainer:default.abc: waiting for other builds, 600 s"
    assert "image ebb-dev/trainer:default.abc: started build p:new" in world.said


def test_an_account_that_may_have_no_build_is_told_the_ways_out() -> None:
    with pytest.raises(BuildError) as caught:
        World(full=float("inf"), most=0).build()
    assert str(caught.value) == (
        "image ebb-dev/trainer:default.abc: this account may run no build in CodeBuild (quota Concurrently running builds for "
        "Linux/Medium environment is 0, as in some new accounts): raise it in Service Quotas or ask AWS Support, or build here: "
        "aws.images.build: docker"
    )


def test_a_build_that_never_gets_its_turn_fails() -> None:
    world = World(full=float("inf"))
    with pytest.raises(BuildError, match="no turn within 4 hours"):
        world.build()
    assert world.time == pytest.approx(codebuild.TURN_SECONDS, abs=60)


@pytest.mark.parametrize("status", ["FAILED", "FAULT", "TIMED_OUT", "STOPPED"])
def test_a_failure_is_told_with_its_log(status: str) -> None:
    world = World(ends=status)
    with pytest.raises(BuildError) as caught:
        world.build()
    lines = str(caught.value).splitlines()
    assert lines[0] == f"image ebb-dev/trainer:default.abc: build p:new {status.lower()} (build: {status.lower()})"
    assert lines[1:-1] == [f"  | #{number} line" for number in range(59, 99)]
    assert lines[-1] == "the whole log: https://console/log"


@pytest.mark.parametrize(("running", "stopped"), [("", [{"id": "p:new"}]), (REQUEST.tag, [])], ids=["ours", "joined"])
def test_an_interrupt_stops_the_build_that_this_run_started(running: str, stopped: list[dict[str, str]]) -> None:
    world = World(running=running)
    world.interrupt_at = 10
    with pytest.raises(KeyboardInterrupt):
        world.build()
    assert world.calls.asked("codebuild", "stop_build") == stopped


def test_a_log_that_cannot_be_read_does_not_fail_a_build() -> None:
    world = World()
    world.calls.answers["logs", "get_log_events"] = Refused("AccessDeniedException", "no")
    world.build()
    assert world.said[1] == "image ebb-dev/trainer:default.abc: build, 15 s"


ARGUMENTS = [
    "--region", "us-west-2", "--project", "p", "--source", "b/k", "--repository", "ebb-dev/trainer", "--url", "u", "--tag", "t",
    "--cache", "c", "--dockerfile", "d", "--argument", "A=1",
]  # fmt: skip


def test_stdout_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert codebuild.main(ARGUMENTS, World(stored=True).calls) == 0
    assert json.loads(capsys.readouterr().out) == {"digest": DIGEST, "compressed_mb": 3456.8}


def test_what_aws_refuses_is_one_sentence_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.calls.answers["ecr", "describe_images"] = Refused("RepositoryNotFoundException", "ecr describe_images: no repository r")
    assert codebuild.main(ARGUMENTS, world.calls) == 1
    assert capsys.readouterr() == ("", "ecr describe_images: no repository r\n")


def test_the_shell_of_the_build_splits_arguments_as_meant() -> None:
    """The buildspec leaves BUILD_ARGUMENTS unquoted: no argument may have a space."""
    assert "$BUILD_ARGUMENTS" in codebuild.BUILDSPEC
    assert '"$BUILD_ARGUMENTS"' not in codebuild.BUILDSPEC
