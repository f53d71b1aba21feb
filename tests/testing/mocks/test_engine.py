"""The mock plugins under the real Pulumi engine, on a small program of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devcluster.settings import CHECKOUT
from testing.pulumi.mocks import graph, page, preview
from testing.pulumi.mocks.engine import FOLDER, EngineError, Stack
from testing.pulumi.mocks.run import name_of
from tests.testing.mocks.world import write_program

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_program(tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="module")
def made(program: Path) -> Iterator[Stack]:
    """A stack after its first `up`. Tests only preview changes of it."""
    with Stack("small", {}, program=program) as stack:
        stack.up()
        yield stack


@pytest.fixture(autouse=True)
def _as_made(request: pytest.FixtureRequest) -> None:
    if "made" in request.fixturenames:
        request.getfixturevalue("made").configure({})


def test_a_first_preview_knows_what_depends_on_nothing(program: Path) -> None:
    with Stack("small", {"small:password": "hidden"}, program=program) as stack:
        run = stack.preview()
        assert {"vpc", "small-eksCluster", "small-eks-k8s", "group", "tag", "facts"} <= run.named("create")
        assert run.changes.keys() == run.urns("create")
        assert stack.resources() == {}
        states = preview.resources(run)
        again = graph.records(preview.resources(stack.preview()))
    records = graph.records(states)
    assert records == again
    by_name = {one["name"]: one for one in records}
    assert by_name["group"]["ignoreChanges"] == ["scalingConfig.desiredSize"]
    assert by_name["group"]["inputs"]["subnetIds"] == ["<from aws:ec2/subnet:Subnet::subnet-a>"]
    assert by_name["group"]["provider"] == "pulumi:providers:aws::aws"
    assert by_name["vpc"]["parent"] == "test:index:Network::network"
    assert by_name["files"]["retainOnDelete"]
    assert by_name["space"]["dependencies"] == ["aws:eks/nodeGroup:NodeGroup::group"]
    assert preview.figures("small", states, seconds=1.0)["resources"] == 11
    assert "aws ec2 Subnet" in "\n".join(preview.tree(states))
    picture = page.html("small", graph.nodes(states, records))
    assert "hidden" not in picture + json.dumps(records)


def test_up_makes_the_component_with_its_children(made: Stack) -> None:
    resources = {name_of(urn): one for urn, one in made.resources().items()}
    cluster = resources["small-eksCluster"]
    assert cluster["parent"] == resources["small"]["urn"]
    assert cluster["provider"].startswith(resources["aws"]["urn"])  # the program's, through the component
    assert cluster["inputs"]["accessConfig"] == {
        "authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": True,
    }  # fmt: skip
    assert cluster["inputs"]["roleArn"] == resources["role"]["outputs"]["arn"]
    assert cluster["inputs"]["vpcConfig"]["subnetIds"] == [resources["subnet-a"]["id"], resources["subnet-b"]["id"]]
    outputs = made.outputs()
    assert outputs["cluster"] == "small"
    assert outputs["securityGroup"].startswith("sg-")
    assert json.loads(outputs["kubeconfig"])["clusters"][0]["cluster"]["server"] == outputs["endpoint"]
    assert resources["vpc"]["outputs"]["tagsAll"] == {"stack": "small"}
    assert resources["tag"]["inputs"]["autoscalingGroupName"].startswith("eks-group-")


def test_a_second_up_changes_nothing(made: Stack) -> None:
    run = made.up()
    assert run.changes == {}
    assert {"vpc", "group", "small-eksCluster", "facts"} <= {name_of(urn) for urn in run.same}
    assert made.refresh().changes == {}


def test_another_maximum_updates_the_group_and_what_tells_of_it(made: Stack) -> None:
    made.configure({"small:max": "5", "small:desired": "1"})
    run = made.preview()
    assert {name_of(urn): op for urn, op in run.changes.items()} == {"group": "update", "facts": "update"}
    assert run.step("group").diff == {"scalingConfig.maxSize": "update"}  # the desired size is ignored


def test_another_capacity_type_replaces_the_group_and_its_tag(made: Stack) -> None:
    made.configure({"small:capacity": "ON_DEMAND"})
    run = made.preview()
    assert run.named("replace") == {"group", "tag"}
    assert run.step("group").replaces == ("capacityType",)
    assert run.step("group").diff == {"capacityType": "update-replace"}
    assert run.named("create", "delete", "update") == set()


def test_another_zone_and_a_larger_disk_replace_nothing(made: Stack) -> None:
    made.configure({"small:zones": "abc", "small:disk": "200"})
    run = made.preview()
    assert {name_of(urn): op for urn, op in run.changes.items()} == {
        "subnet-c": "create", "small-eksCluster": "update", "template": "update", "group": "update",
    }  # fmt: skip
    assert run.step("group").diff == {"launchTemplate.version": "update"}  # a preview does not know which


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        pytest.param(
            {"small:capacity": "CHEAP"}, "capacityType value {CHEAP} has a problem: is 'CHEAP', and must be", id="value"
        ),
        pytest.param({"small:oidc": "true"}, "createOidcProvider must be False", id="argument of the component"),
        pytest.param({"small:existing": "yes"}, "holds nothing that this stack did not make", id="somebody else's"),
    ],
)
def test_what_is_wrong_is_said_plainly(made: Stack, settings: dict[str, object], said: str) -> None:
    made.configure(settings)
    with pytest.raises(EngineError) as caught:
        made.preview()
    assert said in str(caught.value)
    assert "resource monitor shut down" not in str(caught.value)


def test_destroy_goes_backwards_and_leaves_no_folder(program: Path) -> None:
    with Stack("small", {}, program=program) as stack:
        stack.up()
        run = stack.destroy()
        gone = [name_of(urn) for urn in run.finished("delete")]
        assert stack.resources() == {}
        deleted = {call["urn"] for call in stack.calls() if call["method"] == "Delete"}
        folder = stack.folder
    assert gone.index("facts") < gone.index("space") < gone.index("group") < gone.index("small-eksCluster") < gone.index("vpc")
    assert gone.index("tag") < gone.index("group") < gone.index("template")
    assert run.named("delete") >= {"files"}
    assert not any("::files" in urn for urn in deleted)  # retained: forgotten, not deleted
    assert not folder.exists()


def test_a_killed_run_leaves_no_process_and_the_next_one_its_folder_neither(program: Path) -> None:
    script = f"""
from pathlib import Path
from testing.pulumi.mocks.engine import Stack
with Stack("killed", {{}}, program=Path({str(program)!r})) as stack:
    stack.up()
"""
    process = subprocess.Popen([sys.executable, "-c", script], cwd=CHECKOUT, stderr=subprocess.DEVNULL)
    folder = FOLDER / f"killed-{process.pid}-1"
    _wait((folder / "calls.jsonl").exists, "the first call of a plugin")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    _wait(lambda: not _processes_in(folder), "the end of the engine and its plugins")
    assert folder.exists()
    with Stack("small", {}, program=program):
        assert not folder.exists()


def _wait(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def _processes_in(folder: Path) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            place = str((entry / "cwd").readlink())
        except OSError:
            continue
        found += [entry.name] if place.startswith(str(folder)) else []
    return found
