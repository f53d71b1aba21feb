"""The runner of builds: sends the sources, starts one, waits with progress, tells a failure with its log, cancels its own."""

import json
import tarfile
from io import BytesIO
from typing import Any

import pytest

from infra import builds
from infra.builds import BuildError, Clock
from infra.clouds.azure import acr
from infra.clouds.azure.acr import Request, World
from infra.clouds.azure.rest import Refused
from infra.config import ROOT
from infra.images import tarball
from tests.infra.azure.fake_arm import FakeArm
from tests.infra.azure.stacks import SUBSCRIPTION

DIGEST = "sha256:" + "a" * 64
STORED = {"digest": DIGEST, "compressed_mb": 3456.8}
REQUEST = Request(
    group="ebb-dev", registry="ebbdev1a2b3c4d", repository="trainer", tag="default.abc", dockerfile="trainer/Dockerfile",
    content=b"tar", arguments=("BASE=public.ecr.aws/python", "TORCH=2.13.0"),
)  # fmt: skip
REGISTRY = "/resourceGroups/ebb-dev/providers/Microsoft.ContainerRegistry/registries/ebbdev1a2b3c4d"
RUN = f"{REGISTRY}/runs/cb1"


class Builds(FakeArm):
    """A registry: a run takes `seconds`, then the image is there."""

    def __init__(self, *, seconds: float = 40.0, ends: str = "Succeeded", stored: bool = False) -> None:
        self.time, self.ends_at, self.ends, self.stored = 0.0, seconds, ends, stored
        self.said: list[str] = []
        self.sent: dict[str, bytes] = {}
        self.interrupt_at = float("inf")
        super().__init__({
            # https://learn.microsoft.com/rest/api/container-registry/registries/get-build-source-upload-url
            ("POST", f"{REGISTRY}/listBuildSourceUploadUrl"): {
                "uploadUrl": "https://store/blob?sig=x", "relativePath": "tasks-source/202611/one.tar.gz",
            },
            ("POST", f"{REGISTRY}/scheduleRun"): {"properties": {"runId": "cb1", "status": "Queued"}, "name": "cb1"},
            ("GET", RUN): lambda query, body: {"properties": {"runId": "cb1", "status": self._status()}},
            ("POST", f"{RUN}/listLogSasUrl"): {"logLink": "https://store/log?sig=x"},
            ("POST", f"{RUN}/cancel"): {},
        })  # fmt: skip

    def _status(self) -> str:
        if self.time < self.ends_at:
            return "Running" if self.time else "Queued"
        self.stored = self.stored or self.ends == "Succeeded"
        return self.ends

    def _sleep(self, seconds: float) -> None:
        self.time += seconds
        if self.time >= self.interrupt_at:
            raise KeyboardInterrupt

    def world(self) -> World:
        log = "".join(f"\x1b[1m#{number} line\x1b[0m\n" for number in range(99)) + "\n"
        return World(
            arm=self.arm(),
            stored=lambda request: STORED if self.stored else None,
            send=lambda url, content: self.sent.update({url: content}),
            read=lambda url: log,
            clock=Clock(now=lambda: self.time, sleep=self._sleep),
        )

    def build(self) -> dict[str, Any]:
        return acr.build(self.world(), REQUEST, self.said.append)


def test_a_tag_that_the_registry_has_is_not_built() -> None:
    with Builds(stored=True) as azure:
        assert azure.build() == STORED
        assert azure.seen == []


def test_a_new_tag_is_built_and_awaited_with_progress() -> None:
    with Builds(seconds=40) as azure:
        assert azure.build() == STORED
        assert azure.sent == {"https://store/blob?sig=x": b"tar"}
        [asked] = azure.asked("POST", f"{REGISTRY}/scheduleRun")
    assert asked == {
        "type": "DockerBuildRequest",
        "isArchiveEnabled": False,
        "sourceLocation": "tasks-source/202611/one.tar.gz",
        "dockerFilePath": "trainer/Dockerfile",
        "imageNames": ["trainer:default.abc"],
        "isPushEnabled": True,
        "noCache": False,
        "arguments": [
            {"name": "BASE", "value": "public.ecr.aws/python", "isSecret": False},
            {"name": "TORCH", "value": "2.13.0", "isSecret": False},
        ],
        "platform": {"os": "Linux", "architecture": "amd64"},
        "agentConfiguration": {"cpu": 2},
        "timeout": 3600,
    }
    assert azure.said == [
        "image trainer:default.abc: started run cb1",
        "image trainer:default.abc: running, 15 s  #98 line",
        "image trainer:default.abc: running, 30 s  #98 line",
        f"image trainer:default.abc: 3456.8 MB compressed, {DIGEST}",
    ]


def test_a_build_that_fails_tells_its_last_lines() -> None:
    with Builds(seconds=10, ends="Failed") as azure, pytest.raises(BuildError) as error:
        azure.build()
    lines = str(error.value).splitlines()
    assert lines[0] == "image trainer:default.abc: run cb1 ended: failed"
    assert lines[1:] == [f"  | #{number} line" for number in range(59, 99)]


def test_an_interrupted_build_is_cancelled() -> None:
    with Builds() as azure:
        azure.interrupt_at = 20
        with pytest.raises(KeyboardInterrupt):
            azure.build()
        assert len(azure.asked("POST", f"{RUN}/cancel")) == 1
    assert azure.said[-1] == "interrupted: run cb1 is cancelled"


def test_an_image_that_is_gone_at_once_is_no_success() -> None:
    with Builds(seconds=0) as azure:
        azure._status = lambda: "Succeeded"  # type: ignore[method-assign]
        with pytest.raises(BuildError, match=r"has no tag default\.abc"):
            azure.build()


def registry(digest: int | dict[str, Any]) -> FakeArm:
    """https://github.com/Azure/acr/blob/main/docs/AAD-OAuth.md"""
    return FakeArm(
        {
            ("POST", "/oauth2/exchange"): {"refresh_token": "refresh"},
            ("POST", "/oauth2/token"): {"access_token": "access"},
            ("GET", "/acr/v1/trainer/_tags/default.abc"): digest,
            ("GET", f"/acr/v1/trainer/_manifests/{DIGEST}"): {"manifest": {"digest": DIGEST, "imageSize": 3_456_789_012}},
        }
    )


def test_what_the_registry_has_is_asked_with_a_token_of_its_own() -> None:
    with registry({"tag": {"name": "default.abc", "digest": DIGEST}}) as azure:
        assert acr.stored(REQUEST, registry=azure.url, token=lambda resource: "entra") == STORED
        exchange, token = (body.decode() for _, _, _, body in azure.seen[:2])
    host = azure.url.removeprefix("http://").replace(":", "%3A")
    assert exchange == f"grant_type=access_token&service={host}&access_token=entra"
    assert token == f"grant_type=refresh_token&service={host}&scope=repository%3Atrainer%3Ametadata_read&refresh_token=refresh"
    assert "Bearer access" in azure.tokens


@pytest.mark.parametrize(("status", "expected"), [(404, None), (403, Refused)])
def test_what_the_registry_has_not_is_none_and_a_refusal_is_one(status: int, expected: Any) -> None:
    with registry(status) as azure:
        if expected is None:
            assert acr.stored(REQUEST, registry=azure.url, token=lambda resource: "entra") is None
        else:
            with pytest.raises(Refused):
                acr.stored(REQUEST, registry=azure.url, token=lambda resource: "entra")


def test_the_command_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--subscription", SUBSCRIPTION, "--group", "ebb-dev", "--registry", "ebbdev1a2b3c4d", "--repository", "controller"]
    words += ["--tag", "controller.abc", "--dockerfile", "workloads/Dockerfile", "--source", "workloads/Dockerfile"]
    words += ["--source", "LICENSE", "--argument", "BASE=x"]
    with Builds(stored=True) as azure:
        assert acr.main(words, azure.world()) == builds.EXIT_DONE
    assert json.loads(capsys.readouterr().out) == STORED
    with Builds(ends="Error", seconds=0) as azure:
        assert acr.main(words, azure.world()) == builds.EXIT_FAILED
        [content] = azure.sent.values()
    assert "ended: error" in capsys.readouterr().err
    with tarfile.open(fileobj=BytesIO(content)) as packed:
        assert packed.getnames() == ["LICENSE", "workloads/Dockerfile"]
    assert content == tarball(ROOT, ["workloads/Dockerfile", "LICENSE"]), "equal sources, equal bytes"
