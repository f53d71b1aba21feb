"""What travels, through real gateways and to where the trainer looks for it: large code, and a checkpoint of another platform."""

import os
from pathlib import Path

import pytest

from ebb.client.files.transfer import gateway
from ebb.client.staging import checkpoints
from ebb.client.staging.clone import clone
from ebb.client.staging.code import SMALL_BYTES, packed
from ebb.client.staging.delivery import place_of
from ebb.client.submission.request import Request
from ebb.client.submission.submit import prepare, submit
from ebb.elastic.checkpoint import CheckpointFolder, FileFence, Owner, claim_folder
from ebb.elastic.launch.code import unpack
from tests.cli.world import NS, elastic_job
from tests.client.cloned import submitted
from tests.reached import Reached, ebb_of, reached

IDENTITY = {"arch": "resnet18", "global_batch": 64, "seed": 0}


def program(folder: Path, size: int = SMALL_BYTES) -> Path:
    """A folder of which the archive is larger than a ConfigMap may be."""
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    (folder / "words.bin").write_bytes(os.urandom(size))
    return folder


async def test_large_code_is_found_by_the_launcher_and_sent_once(tmp_path: Path) -> None:
    folder, told = program(tmp_path / "src"), list[str]()
    async with reached(tmp_path) as kube:
        ebb, code = ebb_of(kube), packed(folder)
        for name in ("exp1", "exp2"):
            prepared = prepare(ebb, Request(name=name, arguments=("train.py",)), code)
            await submit(ebb, prepared.body, code=prepared.code, note=told.append)
        (container,) = prepared.body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"]
        told_worker = {item["name"]: item["value"] for item in container["env"]}
        where = unpack(Path(told_worker["EBB_CODE_ARCHIVE"]), told_worker["EBB_CODE_SHA256"], told.append)
        assert (where / "words.bin").read_bytes() == (folder / "words.bin").read_bytes()
        async with gateway(ebb) as files:
            again = await files.put(place_of(code, "exp3", ebb.platform).archive, code.archive)
    assert again.moved == 0
    assert not list(tmp_path.glob("output/**/*.part*"))


def train(output: Path) -> int:
    """A job that has written two checkpoints, the second one on the whole folder's last step."""
    owner = claim_folder(output, Owner(uid="uid-digits", job="digits", namespace=NS))
    fence = FileFence.claim(output)
    folder = CheckpointFolder(output, keep=3, identity=IDENTITY, owner=owner)
    folder.prepare(fence.generation)
    for step in (100, 120):
        content = os.urandom(2**20)
        folder.save(lambda file, content=content: file.write(content), fence, step=step)  # type: ignore[misc]
    return 120


@pytest.mark.parametrize("twice", [False, True], ids=["first", "a-second-clone"])
async def test_a_checkpoint_of_another_platform_is_what_the_trainer_goes_on_from(twice: bool, tmp_path: Path) -> None:
    """As the trainer writes it on one side, and as it reads another job's folder on the other."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    told = list[str]()
    async with reached(tmp_path / "here") as source, reached(tmp_path / "there") as target:
        target.server = "https://there:6443"
        source.put(with_folder(source))
        step = train(Path(folder_of(source)))
        for _ in range(1 + twice):
            made = await clone(ebb_of(source), "digits", ebb_of(target), note=told.append)
            await made.bring(told.append)
    assert made.checkpoint is not None
    assert made.resume_from is not None
    assert made.checkpoint.step == step
    found = CheckpointFolder(Path(made.resume_from), keep=1, identity=IDENTITY, owner=None).newest()
    assert found is not None
    assert (found.manifest.step, found.manifest.sha256) == (step, made.checkpoint.sha256)
    assert made.resume_from == checkpoints.place_of(made.checkpoint, str(tmp_path / "there" / "output"))
    assert ("the checkpoint of step 120 is there already" in told) is twice


def folder_of(kube: Reached) -> str:
    return str(kube.root / "output" / NS / "digits-uid-digi")


def with_folder(kube: Reached) -> dict[str, object]:
    """The job of the tests, whose output volume is a folder of this machine."""
    body = submitted(gpus=2)
    (container,) = body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["env"].append({"name": "EBB_OUTPUT_DIR", "value": folder_of(kube)})
    pod = body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] in ("shm", "tmp")]
    return {**elastic_job("digits"), **body}
