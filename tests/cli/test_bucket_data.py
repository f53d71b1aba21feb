"""`--data s3://...`: what is sent, what is refused, how far the copy is, and what a second job takes over."""

import json
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from ebb.api.buckets import folder_of, parse_url
from ebb.api.platform import parse
from ebb.api.spec import Job
from ebb.cli.app import app
from ebb.client.staging.clone import settings_of
from tests.cli.world import NS, FakeKube, elastic_job, known_secret, platform_json, platform_map, session

Object = dict[str, Any]
URL = "s3://imagenet/train"
PLACE = "/mnt/data/imagenet-train-fbb1c5ee"


def invoke(*words: str, kube: FakeKube | None = None) -> Result:
    return CliRunner().invoke(
        app, list(words), obj=session(kube or FakeKube(platform_map())), env={"COLUMNS": "80", "EBB_USER": "ada"}
    )


def sent(*words: str) -> Object:
    kube = FakeKube(platform_map(), known_secret("aws-secret-access-key", variable="AWS_SECRET_ACCESS_KEY"))
    result = invoke("submit", "--name", "digits", "--gpus", "1", "--dry-run", *words, "--", "-m", "trainer", kube=kube)
    assert result.exit_code == 0, result.stderr
    found: Object = yaml.safe_load(result.stdout)
    return found


def test_the_bucket_is_copied_to_the_data_volume_and_the_program_gets_that_folder() -> None:
    body = sent("--data", f"{URL}/", "--env", "AWS_REGION=eu-west-1", "--secret", "aws-secret-access-key")
    place = f"/mnt/data/{folder_of(parse_url(URL))}"
    assert body["spec"]["data"] == {"url": URL, "path": place}
    (container,) = body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert container["args"] == ["-m", "trainer", "--data", place]
    job = Job.of({**body, "metadata": {**body["metadata"], "uid": "u"}})
    assert job.spec.data is not None


def test_the_same_bucket_has_one_place_and_another_has_another() -> None:
    urls = ("s3://imagenet/train", "s3://imagenet/val", "gs://imagenet/train", "s3://imagenet-train", "s3://imagenet")
    places = [folder_of(parse_url(url)) for url in urls]
    assert len(set(places)) == len(urls)
    assert folder_of(parse_url("s3://imagenet/train/")) == places[0]
    assert all(len(place) <= 63 for place in (*places, folder_of(parse_url(f"s3://{'b' * 63}/{'k' * 500}"))))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (
            "s4://imagenet",
            "'s4://imagenet' is no bucket that Ebb can copy: use one of s3://, gs://, az://, as in s3://bucket/folder.",
        ),
        ("s3://Image_Net/x", "'Image_Net' is no name of a bucket; allowed are 3 to 63 of a-z, 0-9"),
        ("s3://imagenet/a//b", "has an empty part, '.' or '..'"),
        ("s3://imagenet/../b", "has an empty part, '.' or '..'"),
    ],
    ids=["scheme", "name", "empty part", "outside"],
)
def test_addresses_that_are_none_are_refused_before_anything_is_sent(url: str, says: str) -> None:
    result = invoke("submit", "--name", "digits", "--data", url, "--dry-run", "--", "-m", "trainer")
    assert result.exit_code != 0
    assert says in " ".join(result.stderr.split())


def test_a_stack_of_an_older_version_says_what_to_do() -> None:
    facts = platform_json()
    del facts["copies"]
    old = {**platform_map(), "data": {"schema": "1", "platform.json": json.dumps(facts)}}
    result = invoke("submit", "--name", "digits", "--data", URL, "--", "-m", "trainer", kube=FakeKube(old))
    assert result.exit_code != 0
    assert "this platform copies no buckets: run `pulumi up`" in " ".join(result.stderr.split())


def copying() -> Object:
    job = elastic_job(state="Waiting", message=f"{URL} is copied to {PLACE}: machines are asked for when it is whole.")
    job["status"]["conditions"][-1]["reason"] = "CopyingData"
    return job


def test_status_says_how_far_the_copy_is() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "digits-copy", "namespace": NS, "uid": "uid-copy", "labels": {"ebb.dev/copy": "x"}},
        "spec": {"containers": [{"name": "copy"}]},
        "status": {"containerStatuses": [{"name": "copy", "state": {"running": {}}}]},
    }
    kube = FakeKube(platform_map(), copying(), pod)
    line = "copied 41 %: 61.5 GB of 150.0 GB, 500000 of 1300000 files, 110.0 MB/s, 13 min left"
    kube.log["uid-copy"] = ["listed: 1300000 objects, 150.0 GB", line]
    seen = json.loads(invoke("status", "digits", "-o", "json", kube=kube).stdout)
    assert seen["job"]["detail"].endswith(f"when it is whole. So far: {line}.")
    assert seen["workers"] == []


def test_status_works_before_the_copy_has_written_a_line() -> None:
    seen = json.loads(invoke("status", "digits", "-o", "json", kube=FakeKube(platform_map(), copying())).stdout)
    assert seen["job"]["detail"].endswith("when it is whole.")


def test_a_clone_names_the_same_bucket() -> None:
    body = sent("--data", URL)
    settings = settings_of({**body, "metadata": {**body["metadata"], "uid": "u"}}, parse(platform_map()["data"]))
    assert settings["data"] == URL
    assert settings["command"] == ["-m", "trainer"]


def test_a_mounted_bucket_is_named_and_nothing_is_copied() -> None:
    facts = platform_json()
    facts["buckets"] = [{"name": "imagenet", "url": "s3://imagenet"}]  # by their addresses mounted ones can be copied, too
    facts["volumes"].append({"name": "imagenet", "claim": "ebb-imagenet", "mountPath": "/mnt/imagenet", "readOnly": True})
    kube = FakeKube({**platform_map(), "data": {"schema": "1", "platform.json": json.dumps(facts)}})
    for said, place in (("imagenet", "/mnt/imagenet"), ("imagenet/train", "/mnt/imagenet/train"), ("digits", "/mnt/data/digits")):
        result = invoke("submit", "--name", "a", "--gpus", "1", "--dry-run", "--data", said, "--", "-m", "trainer", kube=kube)
        body = yaml.safe_load(result.stdout)
        (container,) = body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"]
        assert container["args"] == ["-m", "trainer", "--data", place]
        assert "data" not in body["spec"]


@pytest.mark.parametrize(
    ("said", "url"),
    [("words", "s3://our-data/words"), ("words/en", "s3://our-data/words/en"), ("words/", "s3://our-data/words")],
)
def test_a_bucket_of_the_stack_is_copied_by_its_name(said: str, url: str) -> None:
    facts = {**platform_json(), "buckets": [{"name": "words", "url": "s3://our-data/words"}]}
    kube = FakeKube({**platform_map(), "data": {"schema": "1", "platform.json": json.dumps(facts)}})
    result = invoke("submit", "--name", "a", "--gpus", "1", "--dry-run", "--data", said, "--", "-m", "trainer", kube=kube)
    assert yaml.safe_load(result.stdout)["spec"]["data"] == {"url": url, "path": f"/mnt/data/{folder_of(parse_url(url))}"}


def test_a_worker_leaves_room_for_what_the_cloud_adds_to_mount_a_bucket() -> None:
    facts, wanted = platform_json(), ("submit", "--name", "a", "--gpus", "1", "--dry-run", "--", "-m", "trainer")
    asked = []
    for more in (
        [],
        [{"name": "shards", "claim": "ebb-shards", "mountPath": "/mnt/shards", "readOnly": True, "sidecar": SIDECAR}],
    ):
        facts["volumes"] += more
        kube = FakeKube({**platform_map(), "data": {"schema": "1", "platform.json": json.dumps(facts)}})
        body = yaml.safe_load(invoke(*wanted, kube=kube).stdout)
        (container,) = body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"]
        asked.append(container["resources"]["requests"])
    assert [one["cpu"] for one in asked] == ["3600m", "3350m"]
    assert [one["memory"] for one in asked] == ["12288Mi", "11264Mi"]


SIDECAR = {"annotations": {"cloud/fuse": "true"}, "cpu": 0.25, "memoryGiB": 1}
SCANS = {"name": "scans", "claim": "ebb-scans", "mountPath": "/mnt/scans", "readOnly": True}


@pytest.mark.parametrize("said", ["scans", "scans/a"])
@pytest.mark.parametrize(
    "own", [{"buckets": [{"name": "scans", "url": "s3://scans"}]}, {"volumes": [SCANS]}], ids=["copy", "mount"]
)
def test_a_bucket_of_another_team_is_refused_with_what_to_do(said: str, own: Object) -> None:
    team = {"name": "vision", "namespace": "ebb-team-vision", **own}
    facts = {**platform_json(), "teams": [{**team, "copyAccount": "ebb-copy"}]}
    kube = FakeKube({**platform_map(), "data": {"schema": "1", "platform.json": json.dumps(facts)}})
    wanted = ("--name", "a", "--gpus", "1", "--data", said, "--namespace", "elastic-job", "--", "-m", "trainer")
    result = invoke("submit", "--dry-run", *wanted, kube=kube)
    assert result.exit_code == 2
    words = " ".join(result.stderr.split())
    assert f"data '{said}': bucket scans of this stack is for others: ask for your team" in words
    assert f"or write /mnt/data/{said} for a folder of that name" in words
