"""The way of packed code to a job's pods: small as a ConfigMap of the job, large as a file, and nothing left where it fails."""

import asyncio
import base64
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ebb.api.platform import parse
from ebb.client.errors import ClientError
from ebb.client.platform.connection import Ebb
from ebb.client.staging import code as module
from ebb.client.staging.code import Code
from ebb.client.staging.delivery import CodePlace, deliver, place_of
from ebb.client.submission.request import Request
from ebb.client.submission.submit import prepare, submit
from ebb.kube import CONFIG_MAPS, Denied, NotFound, Object, Resource, Unreachable
from tests.cli.world import NS, FakeKube, elastic_job, platform_map
from tests.client.staging.test_code import packed, write


def ebb(kube: FakeKube) -> Ebb:
    return Ebb(kube=kube, platform=parse(platform_map()["data"]), namespace=NS)


def small(tmp_path: Path) -> Code:
    return packed(tmp_path, write(tmp_path / "code", "train.py"))


def config_map(kube: FakeKube) -> Object:
    return kube._objects[CONFIG_MAPS.path(NS, "exp1-code")]


def worker(body: Object) -> tuple[Object, Object]:
    pod = body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    return pod, pod["containers"][0]


async def test_small_code_is_a_config_map_of_the_job(tmp_path: Path) -> None:
    kube, code = FakeKube(platform_map()), small(tmp_path)
    prepared = prepare(ebb(kube), Request(name="exp1", arguments=("train.py",)), code)
    pod, container = worker(prepared.body)
    assert prepared.body["metadata"]["annotations"] == {"ebb.dev/code": code.sha256}
    assert pod["volumes"][-1] == {"name": "ebb-code", "configMap": {"name": "exp1-code"}}
    assert container["volumeMounts"][-1] == {"name": "ebb-code", "mountPath": "/ebb/code", "readOnly": True}
    assert {item["name"]: item["value"] for item in container["env"] if item["name"].startswith("EBB_")} == {
        "EBB_CODE_ARCHIVE": "/ebb/code/code.tar.gz",
        "EBB_CODE_SHA256": code.sha256,
        "EBB_PACKAGES": "/mnt/output/.ebb/packages",
    }
    job = await submit(ebb(kube), prepared.body, code=prepared.code)
    made = config_map(kube)
    assert base64.b64decode(made["binaryData"]["code.tar.gz"]) == code.archive.read_bytes()
    assert (made["immutable"], made["metadata"]["annotations"]) == (True, {"ebb.dev/code": code.sha256})
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("ElasticJob", job.name, "uid-exp1")


async def test_code_in_a_team_is_its_owners(tmp_path: Path) -> None:
    kube, code = FakeKube(platform_map()), small(tmp_path)
    hers = replace(ebb(kube), owner="ada")
    prepared = prepare(hers, Request(name="exp1", arguments=("train.py",)), code)
    await submit(hers, prepared.body, code=prepared.code)
    assert config_map(kube)["metadata"]["annotations"] == {"ebb.dev/code": code.sha256, "ebb.dev/owner": "ada"}


async def test_a_namespace_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kube = FakeKube(platform_map())
    prepared = prepare(ebb(kube), Request(name="exp1", arguments=("train.py",)), small(tmp_path))

    async def create(*_: object, **__: object) -> Object:
        raise NotFound('namespaces "elastic-job" not found', status=404)

    monkeypatch.setattr(kube, "create", create)
    with pytest.raises(ClientError, match=r"namespace 'elastic-job', or the kind ElasticJob in it, is not there .*Check -n"):
        await submit(ebb(kube), prepared.body, code=prepared.code)


class Volume:
    """The output volume as far as `deliver` sees it."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    async def put(self, path: str, file: Path, *, moved: Callable[[int], None]) -> None:
        self.files[path] = file.read_bytes()


async def test_large_code_is_a_file_of_its_content(tmp_path: Path) -> None:
    folder = write(tmp_path / "code", "train.py")
    (folder / "words.bin").write_bytes(os.urandom(module.SMALL_BYTES))
    code, volume, told = packed(tmp_path, folder), Volume(), list[str]()
    kube = FakeKube(platform_map())
    prepared = prepare(ebb(kube), Request(name="exp1", arguments=("train.py",)), code)
    path = f"/mnt/output/.ebb/code/{code.sha256}.tar.gz"
    pod, container = worker(prepared.body)
    assert {"name": "EBB_CODE_ARCHIVE", "value": path} in container["env"]
    assert "ebb-code" not in {item["name"] for item in pod["volumes"]}
    assert prepared.code is not None
    await deliver(kube, NS, prepared.code, volume, told.append)
    assert volume.files == {path: code.archive.read_bytes()}
    assert told == ["sending the code, 717 kB, to the output volume"]
    assert kube.sent == []


async def test_a_job_that_is_not_made_leaves_no_config_map(tmp_path: Path) -> None:
    kube = FakeKube(platform_map(), elastic_job("exp1"))
    prepared = prepare(ebb(kube), Request(name="exp1", arguments=("train.py",)), small(tmp_path))
    with pytest.raises(ClientError, match=r"name 'exp1' is taken"):
        await submit(ebb(kube), prepared.body, code=prepared.code)
    with pytest.raises(NotFound):
        await kube.get(CONFIG_MAPS, NS, "exp1-code")


@pytest.mark.parametrize("made", [True, False], ids=["the-job-was-made", "it-was-not"])
@pytest.mark.parametrize("error", [Unreachable("no answer"), asyncio.CancelledError()], ids=["answer-lost", "ctrl-c"])
async def test_a_job_whose_making_is_in_doubt(
    made: bool, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code is taken back only where there is no job: pods would wait for it for ever."""
    kube = FakeKube(platform_map())
    prepared = prepare(ebb(kube), Request(name="exp1", arguments=("train.py",)), small(tmp_path))
    create = kube.create

    async def doubtful(resource: Resource, namespace: str | None, body: Object, *, dry_run: bool = False) -> Object:
        if resource == CONFIG_MAPS or made:
            found = await create(resource, namespace, body)
            if resource == CONFIG_MAPS:
                return found
        raise error

    monkeypatch.setattr(kube, "create", doubtful)
    with pytest.raises(type(error)):
        await submit(ebb(kube), prepared.body, code=prepared.code)
    if made:
        assert config_map(kube)["metadata"]["ownerReferences"][0]["name"] == "exp1"
    else:
        assert CONFIG_MAPS.path(NS, "exp1-code") not in kube._objects


def left_behind(made: str) -> Object:
    """By an `ebb submit` that was killed."""
    metadata = {"name": "exp1-code", "namespace": NS, "uid": "uid-old", "creationTimestamp": made}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": {}}


async def test_what_a_killed_submit_left_is_replaced(tmp_path: Path) -> None:
    kube = FakeKube(platform_map(), left_behind("2026-11-21T12:00:00Z"))
    prepared = prepare(ebb(kube), Request(name="exp1", arguments=("train.py",)), small(tmp_path))
    await submit(ebb(kube), prepared.body, code=prepared.code)
    assert config_map(kube)["binaryData"]["code.tar.gz"]


@pytest.mark.parametrize("job", [True, False], ids=["of-a-job", "of-a-submit-at-work"])
async def test_another_jobs_code_is_left_alone(job: bool, tmp_path: Path) -> None:
    kube = FakeKube(platform_map(), left_behind("2026-11-21T12:00:00Z" if job else "2999-01-01T00:00:00Z"))
    if job:
        kube.put(elastic_job("exp1"))
    prepared = prepare(ebb(kube), Request(name="exp1", arguments=("train.py",)), small(tmp_path))
    with pytest.raises(ClientError, match=r"name 'exp1' is taken: choose another --name"):
        await submit(ebb(kube), prepared.body, code=prepared.code)
    assert config_map(kube)["metadata"]["uid"] == "uid-old"


async def test_a_config_map_that_cannot_become_the_jobs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kube, told = FakeKube(platform_map()), list[str]()
    place: CodePlace = place_of(small(tmp_path), "exp1", ebb(kube).platform)
    delivery = await deliver(kube, NS, place, None, told.append)

    async def refuse(*_: object, **__: object) -> Object:
        raise Denied("may not patch", status=403)

    monkeypatch.setattr(kube, "patch", refuse)
    await delivery.belongs_to(elastic_job("exp1"))
    assert told == ["ConfigMap exp1-code will outlive the job, as it could not be made its own: may not patch"]
