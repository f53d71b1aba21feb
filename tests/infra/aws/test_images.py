"""Images of the AWS stack: what is declared to build and keep them."""

import json
import re
from typing import Any

import pytest
from pulumi.runtime import mocks
from pulumi_aws import iam
from pulumi_aws.provider import Provider as AwsProvider

from infra import config
from infra import images as shared
from infra.clouds.aws.builds import images
from infra.config import ROOT
from infra.image_lock import pinned
from infra.part import Part
from testing.pulumi.mocks.tabled import wrong_inputs
from testing.pulumi.mocks.tables.aws import TYPES
from tests.infra import declared as seam
from tests.infra.aws.case import CASE, DIGEST
from tests.infra.declared import ACCOUNT, Declared, declared
from workloads import manifest

ETCD = manifest.pinned("ebb-etcd")
REGISTRY = f"{ACCOUNT}.dkr.ecr.us-west-2.amazonaws.com"
TRAINERS = {"cuda12": {"cuda": "12.6"}}
ANSWERS = CASE.answers


def stack(build: str = "codebuild", **changes: Any) -> config.Stack:
    """A small stack, of the form that a file has."""
    values: dict[str, Any] = {
        "cloud": "aws",
        "zones": ["us-west-2a", "us-west-2b"],
        "manager": {"zone": "us-west-2a", "instanceType": "m7i.large"},
        "trainers": TRAINERS,
        "nodeGroups": [
            {"gpu": "T4", "max": 8},
            {"instanceTypes": ["p4d.24xlarge"], "capacity": "on-demand", "max": 2, "image": "default", "aws": {"efa": True}},
        ],
        "aws": {
            **_dev()["aws"],
            "network": {},
            "storage": {"efs": {}},
            "images": {"build": build},
        },
        **changes,
    }
    values["aws"].pop("drill", None)
    return config.parse(values, ROOT)


def _dev() -> dict[str, Any]:
    """What the stack in the repository pins: versions of add-ons and machines."""
    import yaml

    written = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())["config"]
    return {key.removeprefix("ebb:"): value for key, value in written.items()}


def world(settings: config.Stack, monkeypatch: pytest.MonkeyPatch) -> Declared:
    """The images of a stack, declared. In this one place resources ask AWS: for the registry's password, and the image's size."""
    monkeypatch.setattr(seam._Answers, "call", _call)

    def declare() -> Any:
        part = Part("aws", "images", providers=[AwsProvider("aws", region="us-west-2")])
        role = iam.Role("codebuild", assume_role_policy="{}", opts=part.child())
        made = images.declare(part, "ebb-dev", settings, settings.settings, role)
        return {
            "controller": made.controller,
            "trainers": dict(made.trainers),
            "etcd": made.etcd,
            "legacy": made.legacy_etcd,
            "compressed_mb": dict(made.compressed_mb),
        }

    return declared(declare, answers=ANSWERS)


def _call(self: Any, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    answers: dict[str, dict[str, Any]] = {
        "aws:ecr/getAuthorizationToken:getAuthorizationToken": {
            "proxyEndpoint": f"https://{REGISTRY}", "userName": "AWS", "password": "secret",
        },
        "aws:ecr/getImage:getImage": {"imageSizeInBytes": 3_456_789_012},
    }  # fmt: skip
    return answers[args.token], []


@pytest.mark.parametrize("build", ["codebuild", "docker"])
def test_pods_name_images_by_digest(build: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world(stack(build), monkeypatch).returned == {
        "controller": f"{REGISTRY}/ebb-dev/controller@{DIGEST}",
        "trainers": {name: f"{REGISTRY}/ebb-dev/trainer@{DIGEST}" for name in ("default", "cuda12")},
        "etcd": ETCD,
        "legacy": None,
        "compressed_mb": {"controller": 3456.8, "default": 3456.8, "cuda12": 3456.8},
    }


@pytest.mark.parametrize("build", ["codebuild", "docker"])
def test_repositories_scan_and_forget(build: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = world(stack(build), monkeypatch)
    repositories = made.named("Repository")
    assert {one.inputs["name"] for one in repositories.values()} == {"ebb-dev/controller", "ebb-dev/trainer"}
    for one in repositories.values():
        assert one.inputs["imageTagMutability"] == "IMMUTABLE_WITH_EXCLUSION"
        assert one.inputs["imageTagMutabilityExclusionFilters"] == [{"filter": "*.cache", "filterType": "WILDCARD"}]
        assert one.inputs["imageScanningConfiguration"] == {"scanOnPush": True}
        assert one.inputs["forceDelete"] is True
    rules = json.loads(made.one("LifecyclePolicy", "expiry-trainer").inputs["policy"])["rules"]
    assert [rule["selection"].get("tagPrefixList") for rule in rules] == [["default."], ["cuda12."], None]
    assert [rule["selection"]["countNumber"] for rule in rules] == [10, 10, 7]


def test_with_codebuild_up_runs_a_build_of_each_image(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world(stack("codebuild"), monkeypatch)
    commands = made.named("Command")
    assert set(commands) == {"image-controller", "image-default", "image-cuda12"}
    recipe = next(one for one in images.recipes(stack()) if one.name == "cuda12")
    wanted = commands["image-cuda12"]
    assert wanted.inputs["triggers"] == [recipe.tag]
    words = wanted.inputs["create"].split()
    assert words[:4] == ["exec", shared.python(), "-m", "infra.clouds.aws.builds.codebuild"]
    assert words[words.index("--source") + 1].startswith("image-sources/trainer-")
    assert words[words.index("--url") + 1] == f"{REGISTRY}/ebb-dev/trainer"
    assert [word for word in words if "=" in word] == [
        f"BASE={pinned(images.BASE)}",
        "TORCH=2.13.0+cu126",
        "TORCHVISION=0.28.0+cu126",
        "TORCH_INDEX=https://download.pytorch.org/whl/cu126",
    ]
    assert {"Project", "BucketObjectv2"} <= {key.split("::")[0].rsplit(":", 1)[1] for key in made.before(wanted)}


def test_the_project_is_privileged_and_has_a_log_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world(stack("codebuild"), monkeypatch)
    project = made.one("Project").inputs
    assert project["name"] == "ebb-dev-images"
    assert project["environment"]["privilegedMode"] is True
    assert (
        project["logsConfig"]["cloudwatchLogs"]["groupName"]
        == made.one("LogGroup").inputs["name"]
        == "/aws/codebuild/ebb-dev-images"
    )
    assert made.one("LogGroup").inputs["retentionInDays"] == 14


def test_the_bucket_of_sources_is_private_encrypted_and_goes_with_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world(stack("codebuild"), monkeypatch)
    bucket = made.one("Bucket").inputs
    assert (bucket["bucketPrefix"], bucket["forceDestroy"]) == ("ebb-dev-sources-", True)
    blocked = made.one("BucketPublicAccessBlock").inputs
    assert [blocked[key] for key in ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")] == [
        True
    ] * 4
    assert made.one("BucketServerSideEncryptionConfiguration").inputs["rules"][0]["applyServerSideEncryptionByDefault"] == {
        "sseAlgorithm": "AES256"
    }


def test_the_buckets_lifecycle_rule_says_which_objects_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = world(stack("codebuild"), monkeypatch).one("BucketLifecycleConfiguration").inputs
    assert not list(wrong_inputs(TYPES["aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"], inputs))


def test_with_docker_nothing_of_codebuild_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world(stack("docker"), monkeypatch)
    assert not [one for one in made.resources if one.kind in ("Project", "Bucket", "Command")]
    image = made.one("Image", "image-default")
    recipe = next(one for one in images.recipes(stack()) if one.name == "default")
    assert image.retain_on_delete
    assert image.inputs["context"] == {"location": "."}
    assert image.inputs["dockerfile"] == {"location": "trainer/Dockerfile"}
    assert image.inputs["tags"] == [f"{REGISTRY}/ebb-dev/trainer:{recipe.tag}", f"{REGISTRY}/ebb-dev/trainer:default.cache"]
    assert image.inputs["buildArgs"] == {"BASE": pinned(images.BASE), "EFA": "1"}
    assert image.inputs["platforms"] == ["linux/amd64"]
    assert image.inputs["buildOnPreview"] is False


def test_without_a_build_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"default": f"example.org/trainer@{DIGEST}", "cuda12": f"example.org/trainer12@{DIGEST}"}
    controller = f"example.org/controller@{DIGEST}"
    settings = {"build": "none", "controller": controller, "trainers": named}
    other = {**_dev()["aws"], "network": {}, "storage": {"efs": {}}, "images": settings}
    made = world(stack(aws=other), monkeypatch)
    assert made.returned == {"controller": controller, "trainers": named, "etcd": ETCD, "legacy": None, "compressed_mb": {}}
    assert {one.kind for one in made.resources} == {"aws", "Images", "Role"}


@pytest.mark.parametrize("build", ["codebuild", "none"])
def test_the_older_etcd_is_there_if_the_stack_wants_it(build: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"controller": f"c@{DIGEST}", "trainers": {"default": f"t@{DIGEST}", "cuda12": f"u@{DIGEST}"}}
    named = there if build == "none" else {}
    other = {**_dev()["aws"], "network": {}, "storage": {"efs": {}}, "images": {"build": build, **named}}
    made = world(stack(aws=other, legacyRendezvous=True), monkeypatch).returned
    assert made["legacy"] == manifest.pinned("ebb-etcd-legacy", manifest.LEGACY)
    assert made["legacy"] != made["etcd"] == ETCD
    assert all(re.fullmatch(r"registry\.k8s\.io/etcd:3\.\d+\.\d+-0@sha256:[0-9a-f]{64}", made[one]) for one in ("etcd", "legacy"))


def test_the_dockerfile_knows_every_build_argument() -> None:
    for recipe in images.recipes(stack(trainers={**TRAINERS, "older": {"torch": "2.12.1", "torchvision": "0.27.1"}})):
        lines = (ROOT / recipe.dockerfile).read_text().splitlines()
        known = {line.removeprefix("ARG ").split("=")[0] for line in lines if line.startswith("ARG ")}
        assert set(recipe.arguments) <= known


def test_efa_goes_into_the_images_of_groups_that_have_it() -> None:
    arguments = {one.name: one.arguments for one in images.recipes(stack())}
    assert arguments["default"] == {"BASE": pinned(images.BASE), "EFA": "1"}
    assert "EFA" not in arguments["cuda12"]
