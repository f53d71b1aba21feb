"""`ebb cost` and `ebb gpus`, in words and in 80 columns, and what -o json promises."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner, Result

from ebb.api.clock import stamp
from ebb.api.usage import HOUR, Gap
from ebb.cli.app import app
from ebb.kube import Object
from tests.cli.world import FakeKube, elastic_job, node_group, platform_map, session
from tests.client.test_gpus import node, pod
from tests.client.test_money import MANAGER, MIDNIGHT, NOW, SPOT, job, record, record_map, uid, usage, usage_map, use

BIG = node_group("a100", "local-b", instanceType="p4d.24xlarge", gpuType="A100", gpusPerNode=8, pricePerHourOnDemand=32.77)


@pytest.fixture(autouse=True)
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)


def invoke(*words: str, objects: tuple[Object, ...] = ()) -> Result:
    kube = FakeKube(platform_map(BIG), *objects)
    return CliRunner().invoke(app, list(words), obj=session(kube), env={"COLUMNS": "80", "TZ": "UTC"})


def lines(result: Result) -> list[str]:
    """Without the spaces that make columns."""
    assert result.exit_code == 0, result.output
    found = [line.rstrip() for line in result.stdout.splitlines()]
    assert max(map(len, found)) <= 80
    return [" ".join(line.split()) for line in found]


def spent() -> tuple[Object, ...]:
    made = usage(begun=MIDNIGHT - HOUR)
    use(made, 1, MIDNIGHT + HOUR, 2)
    use(made, 2, MIDNIGHT + 4 * HOUR, 1)
    made.miss(replace(SPOT, held=((uid(1)[:8], 1.0),)), MIDNIGHT + 3 * HOUR, MIDNIGHT + 3.1 * HOUR)
    made.gaps = (Gap(begun=MIDNIGHT + 3 * HOUR, ended=MIDNIGHT + 3.1 * HOUR, vanished=1, came=0),)
    gone = record(2, 1, began=MIDNIGHT + 4 * HOUR, ended=MIDNIGHT + 5 * HOUR)
    return job(1, 2.1, began=MIDNIGHT + HOUR, user="ada"), record_map(gone), usage_map(made)


def test_what_was_spent_by_job() -> None:
    found = lines(invoke("cost", objects=spent()))
    assert found[:12] == [
        "Since 2026-11-15 00:00 UTC, until 12:00 UTC",
        "JOB USER STATE MACHINE-H GPU-H COST $ SAVED $",
        "job-1 ada running 2.10 2.10 0.63 1.47",
        "job-2 - deleted 1.00 1.00 0.30 0.70",
        "jobs $0.93 for 3.10 machine hours",
        "idle $0.06: boot 0.00 h, idle 0.00 h, scale-down 0.20 h",
        "platform $1.30: 13.00 h of the machines that Ebb itself runs on",
        "unseen -$0.03: charged to jobs for machines that had gone unnoticed",
        "machines $2.26 for 16.20 h",
        "Prices are those of ConfigMap ebb-system/ebb-platform; spot is assumed to cost",
        "on-demand less the group's discount. The bill is the cloud's.",
        "USER is the label ebb.dev/user, which `ebb submit` sets to $EBB_USER or the",
    ]
    assert any("No controller looked from 2026-11-22T03:00:00Z for 360 s" in line for line in found)


def test_what_was_spent_by_user_and_by_day() -> None:
    users = lines(invoke("cost", "--by", "user", "--since", "12h", objects=spent()))
    assert users[1:4] == [
        "USER JOBS MACHINE-H GPU-H COST $ SAVED $",
        "ada 1 2.10 2.10 0.63 1.47",
        "(nobody) 1 1.00 1.00 0.30 0.70",
    ]
    days = lines(invoke("cost", "--by", "day", "--since", "all", objects=spent()))
    assert days[0] == "Since the beginning, until 12:00 UTC"
    assert days[1:4] == [
        "DAY (UTC) MACHINE-H GPU-H JOBS $ IDLE $ ALL $",
        "2026-11-22 3.10 3.00 0.93 0.06 2.16",
        "2026-11-21 0.00 0.00 0.00 0.00 0.10",
    ]


def test_a_difference_is_shown() -> None:
    _, _, made = spent()
    found = lines(invoke("cost", objects=(job(1, 2.1, began=MIDNIGHT + HOUR), made)))
    assert "machines $2.26 for 16.20 h" in found  # job-2 has no record: the usage record has it
    found = lines(invoke("cost", objects=(job(1, 9.1, began=MIDNIGHT + HOUR), made)))
    assert "machines $2.26 for 16.20 h; the lines above differ from it by 92.9%" in found


def test_the_objects_have_these_fields() -> None:
    found = json.loads(invoke("cost", "-o", "json", objects=spent()).stdout)
    assert set(found) == {
        "by", "since", "until", "rows", "jobs", "idle", "platform", "unseen", "machines", "difference_usd", "books_begun",
        "prices_assumed", "notes", "team",
    }  # fmt: skip
    assert set(found["rows"][0]) == {
        "name", "user", "state", "jobs", "machine_hours", "gpu_hours", "usd", "usd_on_demand", "idle_usd", "machines_usd",
        "divided",
    }  # fmt: skip
    assert set(found["idle"]) == {"boot_hours", "idle_hours", "scale_down_hours", "usd"}
    assert found["prices_assumed"] is True
    estimate = json.loads(invoke("cost", "--gpus", "8", "--gpu", "A100", "-o", "json").stdout)
    assert set(estimate) == {"gpus", "hours", "offers"}
    assert set(estimate["offers"][0]) == {
        "capacity", "gpu", "machines", "instance_types", "zones", "usd_per_hour", "usd", "usd_on_demand", "boot_seconds",
        "assumed",
    }  # fmt: skip


def test_an_estimate() -> None:
    found = lines(invoke("cost", "--gpus", "8", "--hours", "5", "--gpu", "a100"))
    assert found[:3] == [
        "8 GPUs for 5 h",
        "GPU CAPACITY MACHINES $/H COST $ ZONES",
        "A100 spot 1 x p4d.24xlarge 9.83 49.16 local-b",
    ]
    assert "Spot is assumed to cost on-demand less the group's discount." in found


MISUSES = {
    "an estimate's flag": (["--gpu", "T4"], "ebb: --gpu: only for an estimate. Add --gpus,"),
    "no time": (["--since", "yesterday"], "ebb: since 'yesterday' is not a length of time"),
    "no hours": (["--gpus", "1", "--gpu", "T4", "--hours", "0"], "ebb: hours 0 is not a length of time"),
    "no such gpu": (["--gpus", "1", "--gpu", "H100"], "ebb: gpu 'H100' is not on this platform: it has T4 and A100."),
}


@pytest.mark.parametrize(("words", "said"), MISUSES.values(), ids=MISUSES.keys())
def test_misuses(words: list[str], said: str) -> None:
    result = invoke("cost", *words)
    assert result.exit_code == 2
    assert result.stderr.replace("\n", " ").startswith(said)


def test_gpus() -> None:
    history = [
        {"at": stamp(NOW - 900), "what": "placed", "cause": "local-a"},
        {"at": stamp(NOW - 800), "what": "reclaimed", "worker": 0, "node": "a", "cause": "ReclaimNotice"},
    ]
    entry = {"zone": "local-c", "gpuType": "T4", "capacityType": "spot", "since": stamp(NOW - 700), "at": stamp(NOW - 60)}
    objects = node("a", "spot-t4-local-a"), node("b", "spot-t4-local-a"), pod(0, "a"), elastic_job(history=history, dry=[entry])
    found = lines(invoke("gpus", objects=objects))
    assert found[:5] == [
        "GPU GPUS ZONE CAPACITY MACHINE FREE NOW MAX $/GPU/H",
        "A100 8 local-b spot p4d.24xlarge 0 0 32 1.23",
        "T4 1 local-a spot g4dn.xlarge 1 2 4 0.16",
        "T4 1 local-b spot g4dn.xlarge 0 0 4 0.16",
        "T4 1 local-c spot g4dn.xlarge 0 0 4 0.16",
    ]
    assert "Spot prices are assumed: on-demand less the group's discount." in found


def test_gpus_as_objects() -> None:
    found = json.loads(invoke("gpus", "-o", "json", objects=(node("a", "a100", 8),)).stdout)
    assert set(found) == {"platform", "groups", "reclaims", "dry"}
    (group,) = (one for one in found["groups"] if one["name"] == "a100")
    assert (group["gpus_free"], group["gpus_to_come"], group["boot_seconds"], group["on_demand_usd_per_hour"]) == (
        8,
        24,
        300,
        32.77,
    )
    assert MANAGER.group not in {one["name"] for one in found["groups"]}
