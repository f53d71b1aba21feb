"""Refusals of the mock, reports of a run and its output for people, without an engine."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import struct_pb2  # type: ignore[import-untyped]

from devcluster.settings import CHECKOUT, BoxError
from testing.pulumi.mocks import graph, page, preview, wheel
from testing.pulumi.mocks.__main__ import stack_file
from testing.pulumi.mocks.engine import PLUGINS
from testing.pulumi.mocks.package import OUTPUT, RESOURCE, SECRET, SIGNATURE, UNKNOWN, plain, struct
from testing.pulumi.mocks.run import EventLog, Run
from testing.pulumi.mocks.server import MODULES, refusal

GOOD = {"EBB_PULUMI_ECHO": "1", "PULUMI_BACKEND_URL": f"file://{CHECKOUT}/build/mocks/x/state"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({}, None, id="under the harness"),
        pytest.param({"EBB_PULUMI_ECHO": ""}, "a mock for tests, not the official plugin", id="without the opt-in"),
        pytest.param({"PULUMI_BACKEND_URL": ""}, "writes only into a state folder under", id="no backend"),
        pytest.param({"PULUMI_BACKEND_URL": "s3://bucket"}, "'s3://bucket'", id="a bucket"),
        pytest.param({"PULUMI_BACKEND_URL": f"file://{CHECKOUT}/.ebb/pulumi/state"}, "writes only", id="the local stack's state"),
        pytest.param({"PULUMI_BACKEND_URL": f"file://{CHECKOUT}/build/../.ebb/state"}, "writes only", id="a way out of build"),
        pytest.param({"PULUMI_BACKEND_URL": "https://api.pulumi.com"}, "writes only", id="Pulumi Cloud"),
    ],
)
def test_where_it_serves(change: dict[str, str], said: str | None) -> None:
    found = refusal({**GOOD, **change})
    assert (found is None) if said is None else (found is not None and said in found)


@pytest.mark.parametrize("name", MODULES)
def test_a_plugin_that_a_user_starts_ends_with_a_sentence(name: str) -> None:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("EBB_PULUMI", "PULUMI_"))}
    done = subprocess.run(
        [PLUGINS / f"pulumi-resource-{name}", "127.0.0.1:1"], env=clean, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: this is a mock for tests")


def test_no_folder_of_plugins_is_on_the_path_of_a_shell() -> None:
    assert str(PLUGINS) not in (CHECKOUT / "env").read_text()
    assert PLUGINS.name == "plugin"


def test_values_keep_what_the_engine_says_of_them() -> None:
    value = struct_pb2.Struct()
    value.update(
        {
            "whole": 2, "half": 0.5, "nothing": None, "list": [1, {"a": None, "b": True}],
            "secret": {SIGNATURE: SECRET, "value": "x"}, "output": {SIGNATURE: OUTPUT, "value": "y", "dependencies": []},
            "reference": {SIGNATURE: RESOURCE, "urn": "urn:1", "id": "i"}, "file": {SIGNATURE: "asset", "hash": "h"},
        }
    )  # fmt: skip
    expected = {
        "whole": 2, "half": 0.5, "list": [1, {"b": True}], "secret": "x", "output": "y", "reference": "urn:1",
        "file": {SIGNATURE: "asset", "hash": "h"},
    }  # fmt: skip
    assert plain(value) == expected
    assert plain(struct(expected)) == {**expected, "file": expected["file"]}
    assert isinstance(plain(value)["whole"], int)


def test_properties_are_read_from_the_sdk() -> None:
    group = wheel.args_of("aws:eks/nodeGroup:NodeGroup")
    assert group["scalingConfig"].required
    taints = group["taints"]
    assert taints.item is not None
    assert taints.item.fields is not None
    assert set(wheel.fields_of(taints.item.fields)) == {"effect", "key", "value"}
    assert wheel.outputs_of("aws:ec2/launchTemplate:LaunchTemplate")["latestVersion"] == wheel.Property("integer", True)
    clash = wheel.args_of("aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration")
    assert clash["rules"].kind == "list"
    with pytest.raises(KeyError, match="no ec2/unheard_of"):
        wheel.args_of("aws:ec2/unheardOf:UnheardOf")


def urn(kind: str, name: str) -> str:
    return f"urn:pulumi:dev::ebb::{kind}::{name}"


def event(kind: str, op: str, name: str, **more: Any) -> dict[str, Any]:
    return {kind: {"metadata": {"op": op, "urn": urn("aws:ec2/vpc:Vpc", name), "type": "", "new": {"inputs": {"a": 1}}, **more}}}


def test_a_run_is_read_from_its_events() -> None:
    changed = {"detailedDiff": {"cidrBlock": {"diffKind": "update-replace", "inputDiff": True}}, "keys": ["cidrBlock"]}
    events = [
        event("resourcePreEvent", "same", "kept"), event("resOutputsEvent", "same", "kept"),
        event("resourcePreEvent", "create-replacement", "moved", **changed),
        event("resourcePreEvent", "create", "new"),
        event("resOutputsEvent", "create", "new"),
        event("resOutputsEvent", "create-replacement", "moved", **changed),
        event("resourcePreEvent", "delete-replaced", "moved"), event("resOutputsEvent", "delete-replaced", "moved"),
        event("resourcePreEvent", "delete", "broken"), event("resOpFailedEvent", "delete", "broken"),
        event("resourcePreEvent", "refresh", "drifted"), event("resOutputsEvent", "update", "drifted"),
        {"summaryEvent": {"resourceChanges": {"create": 1}}},
    ]  # fmt: skip
    run = Run.of("up", events, [], seconds=1.0)
    assert {one.rpartition("::")[2]: op for one, op in run.changes.items()} == {
        "moved": "replace", "new": "create", "broken": "delete", "drifted": "update",
    }  # fmt: skip
    assert run.same == {urn("aws:ec2/vpc:Vpc", "kept")}
    assert run.named("create", "replace") == {"new", "moved"}
    assert [one.rpartition("::")[2] for one in run.started("create", "create-replacement")] == ["moved", "new"]
    assert [one.rpartition("::")[2] for one in run.finished("create", "create-replacement")] == ["new", "moved"]
    assert run.finished("delete") == []  # it failed
    assert (run.step("moved").diff, run.step("moved").replaces) == ({"cidrBlock": "update-replace"}, ("cidrBlock",))
    with pytest.raises(KeyError, match="no step for 'lost'"):
        run.step("lost")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param([("", "update failed")], "update failed", id="nothing better"),
        pytest.param([("", "error: update failed"), (urn("a:b:C", "x"), "no room")], "x: no room", id="with its resource"),
        pytest.param([(urn("a:b:C", "x"), "a:b:C resource 'x': no")], "a:b:C resource 'x': no", id="which is named already"),
        pytest.param(
            [(urn("pulumi:pulumi:Stack", "ebb-dev"), "Traceback ... resource monitor shut down"), ("", "refused")],
            "refused", id="without the program's complaint about it",
        ),
        pytest.param([("", "twice"), ("", "twice")], "twice", id="once"),
    ],
)  # fmt: skip
def test_what_a_person_reads_of_an_error(said: list[tuple[str, str]], expected: str) -> None:
    events = [{"diagnosticEvent": {"urn": place, "message": text, "severity": "error"}} for place, text in said]
    assert Run.of("up", events, [], seconds=0.0).error() == expected


def test_a_growing_log_is_read_by_whole_lines(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log")
    assert list(log.new()) == []
    (tmp_path / "log").write_text('{"a": 1}\n{"b"')
    assert list(log.new()) == [{"a": 1}]
    assert list(log.new()) == []
    (tmp_path / "log").write_text('{"a": 1}\n{"b": 2}\n')
    assert list(log.new()) == [{"b": 2}]


def state(kind: str, name: str, *, parent: str = "", needs: tuple[str, ...] = (), **more: Any) -> tuple[str, dict[str, Any]]:
    return urn(kind, name), {"custom": not kind.startswith("ebb:"), "parent": parent, "dependencies": list(needs), **more}


NETWORK, VPC, ROLE = urn("ebb:aws:Network", "network"), urn("aws:ec2/vpc:Vpc", "vpc"), urn("aws:iam/role:Role", "role")
STATES = dict(
    (
        state("ebb:aws:Network", "network"),
        state("aws:ec2/vpc:Vpc", "vpc", parent=NETWORK, inputs={"cidrBlock": "10.0.0.0/16", "__defaults": []}, protect=True),
        *(
            state(
                "aws:ec2/subnet:Subnet",
                f"s{n}",
                parent=NETWORK,
                needs=(VPC,),
                inputs={"vpcId": UNKNOWN, "tags": {"a": ["b", UNKNOWN]}},
                propertyDependencies={"vpcId": [VPC]},
            )
            for n in range(5)
        ),
        state("pulumi:providers:kubernetes", "api", needs=(ROLE,)),
        state("aws:iam/role:Role", "role"),
        state(
            "kubernetes:core/v1:ConfigMap", "facts", needs=(NETWORK,), provider=f"{urn('pulumi:providers:kubernetes', 'api')}::1"
        ),
    )
)


def test_the_tree_is_short_and_names_everything_once() -> None:
    assert preview.tree(STATES) == [
        f"+ {'ebb aws Network':52} network",
        f"    + {'aws ec2 Subnet':48} 5: s0, s1, s2, s3, ...",
        f"    + {'aws ec2 Vpc':48} vpc",
        f"+ {'aws iam Role':52} role",
        f"+ {'kubernetes core/v1 ConfigMap':52} facts",
        f"+ {'provider kubernetes':52} api",
    ]
    assert preview.counts(STATES) == [
        "   6  network              5 Subnet, 1 Vpc",
        "   1  the rest             1 Role",
        "   1  in the cluster       1 ConfigMap",
        "   8  in all",
    ]
    assert preview.figures("dev", STATES, seconds=1.04) == {
        "preview": "ok", "stack": "dev", "resources": 8, "aws": 7, "kubernetes": 1, "components": 1, "providers": 1,
        "seconds": 1.0,
    }  # fmt: skip


def test_records_are_sorted_and_say_where_values_come_from() -> None:
    records = graph.records(STATES)
    assert [one["name"] for one in records] == ["s0", "s1", "s2", "s3", "s4", "vpc", "role", "network", "facts", "api"]
    assert records[0] == {
        "type": "aws:ec2/subnet:Subnet", "name": "s0", "parent": "ebb:aws:Network::network", "provider": None,
        "inputs": {"tags": {"a": ["b", "<from what the update makes>"]}, "vpcId": "<from aws:ec2/vpc:Vpc::vpc>"},
        "dependencies": ["aws:ec2/vpc:Vpc::vpc"], "protect": False, "retainOnDelete": False, "ignoreChanges": [],
    }  # fmt: skip
    assert (records[5]["inputs"], records[5]["protect"]) == ({"cidrBlock": "10.0.0.0/16"}, True)
    assert records[8]["provider"] == "pulumi:providers:kubernetes::api"


def test_the_picture_has_a_column_per_step() -> None:
    nodes = {node.record["name"]: node for node in graph.nodes(STATES, graph.records(STATES))}
    assert {name: node.step for name, node in nodes.items()} == {
        "vpc": 1, "role": 1, "facts": 3, **{f"s{number}": 2 for number in range(5)},
    }  # fmt: skip
    # A component stands for its children, and a provider for what it needs itself.
    assert set(nodes["facts"].needs) == {
        "aws:iam/role:Role::role",
        *(one.label for one in nodes.values() if one.part == "network"),
    }
    assert nodes["s0"].part == "network"


def test_the_page_needs_no_network_and_no_text_can_break_out_of_it() -> None:
    record = {"type": "aws:ec2/vpc:Vpc", "name": "</script><b>", "protect": True, "retainOnDelete": False}
    text = page.html("dev", [page.Node(record=record, part="<part>", step=1, needs=[])])
    assert text.count("</script>") == 1
    assert "<part>" not in text
    assert "http:" not in text
    assert "https:" not in text
    data = text.partition("const data = ")[2].partition(";\n")[0]
    assert json.loads(data)["aws:ec2/vpc:Vpc::</script><b>"]["needs"] == []


def test_an_unknown_stack_is_told_with_those_there_are(tmp_path: Path) -> None:
    for name in ("Pulumi.dev.yaml", "Pulumi.prod.yaml", "Pulumi.yaml"):
        (tmp_path / name).write_text("")
    assert stack_file("dev", tmp_path).name == "Pulumi.dev.yaml"
    with pytest.raises(BoxError, match=r"no stack 'nope': .*There are dev, prod"):
        stack_file("nope", tmp_path)


def test_the_help_says_what_it_proves() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "testing.pulumi.mocks", "preview", "--help"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "no account, no cluster, no network" in done.stdout
