"""The request read back from a job, and its checkpoint for another platform. The verb: tests/cli/test_from.py."""

from dataclasses import replace
from typing import Any

import pytest

from ebb.client.errors import BadRequest
from ebb.client.platform.connection import Ebb
from ebb.client.staging import checkpoints
from ebb.client.staging.checkpoints import newest
from ebb.client.staging.clone import fitting, settings_of, stem_of
from ebb.client.submission.jobfile import request_of
from ebb.client.submission.submit import prepare
from tests.cli.world import NS, FakeKube, elastic_job, platform_map
from tests.client.cloned import FOLDER, Volume, platform, submitted

WORDS = {
    "gpus": 2, "min_gpus": 1, "max_gpus": 4, "env": {"LR": "0.1"}, "zone": "local-b", "shm": "1Gi", "max_cost": 5.0,
    "hold_on_failure": 1800, "burn_in": 120, "progress_regex": r"step (?P<step>\d+)",
}  # fmt: skip


def test_a_job_is_read_back_as_it_was_asked_for() -> None:
    """The job file that comes out makes the same manifest again."""
    body = submitted(**WORDS, priority="elastic", queue="gpus", image="example.org/x:1")
    assert body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    settings = settings_of(body, platform(platform_map()))
    again = request_of({"name": "digits", **settings}, {}, (), "ab12")
    ebb = Ebb(kube=FakeKube(), platform=platform(platform_map()), namespace=NS)
    made = prepare(ebb, again).body
    assert (made["spec"], made["metadata"]["labels"]) == (body["spec"], body["metadata"]["labels"])
    container = made["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert {"name": "EBB_PROGRESS_REGEX", "value": r"step (?P<step>\d+)"} in container["env"]
    assert submitted()["spec"] != body["spec"]


def test_what_nobody_asked_for_is_not_read_back() -> None:
    assert settings_of(submitted(), platform(platform_map())) == {
        "gpus": 1, "min": 1, "max": 1, "gpu": "T4", "capacity": "spot", "command": ["-m", "trainer", "--lr", "0.1"],
    }  # fmt: skip


def test_what_ebb_did_not_make_is_refused() -> None:
    whole = elastic_job("old")
    whole["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["volumes"] = [{"name": "mine", "hostPath": {"path": "/"}}]
    with pytest.raises(BadRequest, match="from 'old': this job was not made by `ebb submit`"):
        settings_of(whole, platform(platform_map()))


FITTING = {
    "more than it could": ({"gpus": 8}, {"gpus": 2, "min": 1}),
    "fewer than it must": ({"gpus": 1}, {"gpus": 2, "max": 4}),
    "within": ({"gpus": 3}, {"gpus": 2, "min": 1, "max": 4}),
}


@pytest.mark.parametrize(("told", "kept"), FITTING.values(), ids=FITTING)
def test_bounds_that_no_longer_hold_are_dropped(told: dict[str, Any], kept: dict[str, Any]) -> None:
    settings = {"gpus": 2, "min": 1, "max": 4} if "min" in kept or "max" in kept else {}
    if told == {"gpus": 1}:
        settings["min"] = 2
    assert fitting(settings, told) == kept


def test_another_gpu_has_other_zones() -> None:
    assert fitting({"gpu": "T4", "zone": "a", "capacity": "spot", "shm": "1Gi", "env": {}}, {"gpu": "A100"}) == {
        "gpu": "T4", "env": {},
    }  # fmt: skip


@pytest.mark.parametrize(("name", "stem"), [("digits", "digits"), ("digits-1a2b", "digits"), ("a" * 54, "a" * 40)])
def test_names_of_clones(name: str, stem: str) -> None:
    assert stem_of(name) == stem


# --- Checkpoints


async def test_newest_is_generation_then_step_then_lowest_rank() -> None:
    volume = Volume()
    assert await newest(volume, FOLDER) is None
    for generation, step, writer in ((1, 900, 0), (2, 120, 1), (2, 120, 0), (2, 100, 0)):
        volume.save(FOLDER, generation, step, writer=writer)
    found = await newest(volume, FOLDER)
    assert found is not None
    assert (found.name, found.step, found.words) == ("g00002-s00000120-r0", 120, "step 120, 7 B")


@pytest.mark.parametrize("damage", ["torn data", "no data", "torn manifest", "a candidate"])
async def test_what_is_damaged_or_not_committed_is_passed_over(damage: str) -> None:
    volume = Volume()
    volume.save(FOLDER, 1, 100)
    volume.save(FOLDER, 1, 200)
    name = f"{FOLDER}/checkpoints/g00001-s00000200-r0"
    if damage == "torn data":
        volume.files[f"{name}.pt"] = b"wei"
    elif damage == "no data":
        del volume.files[f"{name}.pt"]
    elif damage == "torn manifest":
        volume.files[f"{name}.json"] = b"{"
    else:
        volume.files[f"{name}.candidate"] = volume.files.pop(f"{name}.json")
    found = await newest(volume, FOLDER)
    assert found is not None
    assert found.step == 100


async def test_a_checkpoint_is_carried_once_and_its_manifest_comes_last() -> None:
    here, there = Volume(), Volume()
    here.save(FOLDER, 2, 120)
    found = await newest(here, FOLDER)
    assert found is not None
    told = list[str]()
    place = await checkpoints.carry(found, here, there, "/mnt/output", told.append)
    assert place == f"/mnt/output/.ebb/resume/{found.sha256[:16]}"
    assert [path.rsplit(".", 1)[1] for path in there.sent] == ["pt", "json"]
    assert replace(found, folder=place) == await newest(there, place)
    assert told == ["fetching the checkpoint of step 120, 7 B", "sending it"]
    assert await checkpoints.carry(found, here, there, "/mnt/output", told.append) == place
    assert (len(there.sent), told[-1]) == (2, "the checkpoint of step 120 is there already")
