"""The verbs that need no cluster, the charge log's file, and the NodeGroup schema."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.__main__ import parser
from devcluster.cloud import verbs
from devcluster.cloud.charges import Charges, read_charges
from devcluster.cloud.records import NodeGroupObject, node_group
from devcluster.cloud.verbs import CloudError
from devcluster.settings import CHECKOUT, ZONES, Box

GROUP = NodeGroupObject(name="t4-a", zone="local-a", capacity_type="spot", usd_per_hour=0.16)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    made = Box(name="b", slot=0, home=tmp_path)
    made.folder.mkdir(parents=True)
    return made


def test_exhaust_and_restore_change_one_zone(box: Box) -> None:
    verbs.exhaust(box, "local-b")
    assert "`python -m devcluster restore local-a`" in verbs.exhaust(box, "local-a")
    assert json.loads(box.exhausted.read_text()) == ["local-a", "local-b"]
    assert verbs.restore(box, "local-b") == "local-b gives machines again."
    verbs.restore(box, "local-b")
    assert json.loads(box.exhausted.read_text()) == ["local-a"]


@pytest.mark.parametrize("verb", [verbs.exhaust, verbs.restore])
def test_a_zone_that_is_not_there(box: Box, verb: Any) -> None:
    with pytest.raises(CloudError, match="there is no zone 'local-x'; the devcluster has local-a, local-b, local-c"):
        verb(box, "local-x")


def test_a_garbled_file_of_zones_is_not_overwritten(box: Box) -> None:
    box.exhausted.write_text("{")
    with pytest.raises(CloudError, match="must be a JSON list of zones"):
        verbs.exhaust(box, "local-a")
    assert box.exhausted.read_text() == "{"


def test_the_charge_log_is_one_line_per_machine(tmp_path: Path) -> None:
    path = tmp_path / "machines.jsonl"
    charges = Charges(path)
    charges.ask("m1", GROUP, 1.0)
    charges.ask("m2", GROUP, 2.0)
    charges.booted("m1", 3.0)
    charges.gone("m1", 4.0, "idle")
    charges.gone("m1", 5.0, "vanished")
    same = {"group": "t4-a", "zone": "local-a", "capacity_type": "spot", "price_per_hour": 0.16}
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"machine": "m1", **same, "asked_at": 1.0, "booted_at": 3.0, "gone_at": 4.0, "why": "idle"},
        {"machine": "m2", **same, "asked_at": 2.0, "booted_at": None, "gone_at": None, "why": None},
    ]
    assert [charge.machine for charge in Charges(path).living()] == ["m2"]


def test_a_file_that_is_no_charge_log(tmp_path: Path) -> None:
    (tmp_path / "machines.jsonl").write_text('{"other": 1}\n')
    with pytest.raises(ValueError, match=r"is not a charge log .*move it away"):
        read_charges(tmp_path / "machines.jsonl")


def schema() -> dict[str, Any]:
    crd = yaml.safe_load((CHECKOUT / "devcluster" / "manifests" / "nodegroup-crd.yaml").read_text())
    (version,) = crd["spec"]["versions"]
    return dict(version["schema"]["openAPIV3Schema"])


def fields(item: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in item.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from fields(field.get("items", field), f"{path}.{name}")


def test_every_field_of_a_node_group_is_described() -> None:
    silent = [path for path, field in fields(schema()) if not field.get("description")]
    assert silent == [".metadata"]  # where the API server allows none


def test_the_zones_are_the_boxs() -> None:
    assert tuple(schema()["properties"]["spec"]["properties"]["zone"]["enum"]) == ZONES


def test_a_group_with_all_fields_of_the_schema_is_read() -> None:
    spec = {
        "zone": "local-a",
        "instanceType": "g4dn.xlarge",
        "gpuType": "T4",
        "gpus": 1,
        "cpu": 4,
        "memoryGiB": 16,
        "capacityType": "spot",
        "labels": {"a": "b"},
        "taints": [{"key": "k", "effect": "NoSchedule"}],
        "min": 1,
        "max": 2,
        "bootSeconds": 5,
        "pricePerHour": 0.16,
        "noticeSeconds": 30,
        "maxAgeSeconds": 600,
    }
    assert set(schema()["properties"]["spec"]["properties"]) == set(spec)
    group = node_group({"metadata": {"name": "g"}, "spec": spec})
    assert (group.gpus, group.min, group.max, group.boot_seconds, group.notice_seconds) == (1, 1, 2, 5, 30)
    assert group.max_age_seconds == 600
    assert group.allocatable == {"cpu": 4000, "memory": 16 * 2**30, "pods": 110, "nvidia.com/gpu": 1}


@pytest.mark.parametrize(("old", "new"), [("dry", "exhaust"), ("wet", "restore")])
def test_the_former_names_of_the_verbs_are_understood_and_not_shown(old: str, new: str) -> None:
    parsed = [vars(parser().parse_args([verb, "local-a", "--box", "b"])) for verb in (old, new)]
    assert parsed[0] == parsed[1]
    assert f"\n    {new} " in parser().format_help()
    assert f"\n    {old} " not in parser().format_help()
