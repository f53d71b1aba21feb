"""A stack on a cluster that somebody else runs: what is declared there, what the CLI is told, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ebb.api import platform as platform_facts
from infra import catalog, config, program
from infra.clouds.kubeconfig import CLOUD
from infra.config import ROOT
from testing.pulumi.mocks.engine import Stack
from tests.infra.declared import Registered, declared
from tests.infra.stacks import GONE, changed, settings
from workloads.cluster import LABEL_NODE_GROUP

HEAD = {"kubernetes.io/hostname": "head"}


def values(folder: Path) -> dict[str, Any]:
    """The example, with a kubeconfig that is there."""
    kubeconfig = folder / "kubeconfig"
    clusters = [{"name": name, "cluster": {"server": f"https://{name}"}} for name in ("x", "y")]
    contexts = [{"name": f"at-{name}", "context": {"cluster": name}} for name in ("x", "y")]
    kubeconfig.write_text(yaml.safe_dump({"clusters": clusters, "contexts": contexts, "current-context": "at-x"}))
    return changed(settings("lab"), "kubeconfig.file", str(kubeconfig))


def graph(values: dict[str, Any]) -> dict[str, Registered]:
    stack = config.parse(values, ROOT)
    return {one.name: one for one in declared(lambda: program.declare(stack, CLOUD.make(stack)), stack="lab").resources}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Registered]:
    return graph(values(tmp_path_factory.mktemp("lab")))


def told(there: dict[str, Registered]) -> platform_facts.Platform:
    return platform_facts.parse(there["ebb-platform"].inputs["data"])


def test_nothing_is_made_but_what_runs_in_the_cluster(lab: dict[str, Registered]) -> None:
    """No kind of Ebb's own beside the jobs', and no cloud's provider."""
    providers = {one.type for one in lab.values() if one.type.startswith("pulumi:providers:")}
    assert providers == {"pulumi:providers:kubernetes"}
    made = {one.inputs["metadata"]["name"] for one in lab.values() if one.kind == "CustomResourceDefinition"}
    assert made == {"elasticjobs.elastic.pytorch.org"}
    assert not [one for one in lab.values() if "box.ebb.dev" in json.dumps(one.inputs)]


def test_the_cli_is_told_what_the_stack_says_of_its_machines(lab: dict[str, Registered]) -> None:
    manager, workers = told(lab).node_groups
    assert (workers.name, workers.zone, workers.gpu_type, workers.gpus_per_node) == (
        "on-demand-rtx-4090-lab",
        "lab",
        "RTX-4090",
        2,
    )
    assert (workers.cpu, workers.memory_gib, workers.usd_per_hour, workers.max) == (32, 128, 0.40, 3)
    assert (manager.cpu, manager.usd_per_hour) == (8, 0)
    written = json.loads(lab["ebb-platform"].inputs["data"]["platform.json"])
    assert [one["selector"] for one in written["nodeGroups"]] == [HEAD, {"nvidia.com/gpu.product": "NVIDIA-GeForce-RTX-4090"}]


def pods(there: dict[str, Registered]) -> dict[str, dict[str, Any]]:
    """Workload -> the spec of its pods."""
    found = {}
    for name, one in there.items():
        spec = one.inputs.get("spec") or {}
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template and one.kind != "CustomResourceDefinition":
            found[name] = template["spec"]
    return found


def test_every_pod_of_the_platform_runs_where_the_selector_says(lab: dict[str, Registered]) -> None:
    selectors = {name: spec.get("nodeSelector") for name, spec in pods(lab).items()}
    assert set(map(str, selectors.values())) == {str(HEAD)}, selectors
    assert len(selectors) > 5


def test_the_labels_go_after_the_facts_that_they_follow(lab: dict[str, Registered]) -> None:
    """On the way down the program sees that the facts are gone, and takes the labels away. The policy is there before rights."""
    assert any(key.endswith("::deployment-ebb-node-labels") for key in lab["ebb-platform"].dependencies)
    binding = lab["cluster-role-binding-ebb-node-labels"]
    assert any(key.endswith("::validating-admission-policy-binding-ebb-node-labels") for key in binding.dependencies)
    assert "daemon-set-ebb-notices" not in lab


def test_agents_on_request(tmp_path: Path) -> None:
    there = graph(changed(values(tmp_path), "kubeconfig.notices", True))
    assert "daemon-set-ebb-notices" in there


def test_the_storage_classes_are_the_clusters(lab: dict[str, Registered]) -> None:
    classes = {
        one.inputs["metadata"]["name"]: one.inputs["spec"]["storageClassName"]
        for one in lab.values()
        if one.kind == "PersistentVolumeClaim"
    }
    assert classes == {"ebb-data": "nfs", "ebb-output": "nfs", "efs-claim": "nfs", "etcd-data": "local-path"}


def test_spot_machines_and_taints_of_the_nodes_own(tmp_path: Path) -> None:
    line = {
        "gpu": "RTX-4090", "capacity": "spot", "max": 1,
        "kubeconfig": {"selector": {"pool": "cheap"}, "taints": [{"key": "dedicated", "value": "ml", "effect": "NoExecute"}]},
    }  # fmt: skip
    there = graph(changed(values(tmp_path), "nodeGroups", [line]) | {"jobs": []})
    (group,) = told(there).node_groups[1:]
    assert [(one.key, one.value, one.effect) for one in group.taints] == [
        ("nvidia.com/gpu", "present", "NoSchedule"),
        ("ebb.dev/capacity-type", "spot", "NoSchedule"),
        ("dedicated", "ml", "NoExecute"),
    ]
    assert group.labels[LABEL_NODE_GROUP] == group.name


def test_each_context_is_a_cluster_of_its_own(tmp_path: Path) -> None:
    """What is a cluster to Pulumi: another one means that everything is made anew."""
    one, same, other = (
        graph(changed(values(tmp_path), "kubeconfig.context", context))["cluster"].inputs["clusterIdentifier"]
        for context in (None, "at-x", "at-y")
    )
    assert one == same != other


@pytest.mark.parametrize(
    ("path", "value", "key", "words"),
    [
        ("nodeGroups[0].kubeconfig", GONE, "nodeGroups[0].kubeconfig.selector", "is missing: it names labels"),
        ("kubeconfig.managerSelector", {}, "kubeconfig.managerSelector", "is empty: it names labels"),
        ("kubeconfig.images.trainers", {}, "kubeconfig.images.trainers.default", "missing"),
        ("kubeconfig.images.controller", None, "kubeconfig.images.controller", "missing"),
        ("instanceTypes.node-4090.gpu", "RTX-4080", "instanceTypes.node-4090.gpu", "RTX-4090"),
        ("instanceTypes.node-4090.gpu", GONE, "instanceTypes.node-4090.gpu", "is missing, with gpus: 2"),
        ("instanceTypes.node-4090.cpu", GONE, "instanceTypes.node-4090.cpu", "is missing"),
        ("instanceTypes.node-4090.like", "a100", "instanceTypes.node-4090.like", "a100"),
        ("manager.instanceType", "node-4090", "manager.instanceType", "head"),
        ("manager.count", 2, "manager.count", "kubeconfig.managerSelector may choose several nodes"),
        ("nodeGroups[0].capacity", "flex-start", "nodeGroups[0].capacity", "spot, on-demand"),
    ],
)
def test_what_is_refused(tmp_path: Path, path: str, value: Any, key: str, words: str) -> None:
    with pytest.raises(config.ConfigError) as refused:
        config.parse(changed(values(tmp_path), path, value), ROOT)
    line = next((one for one in str(refused.value).splitlines() if f"{key}:" in one), "")
    assert words in line, refused.value


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    stack = config.parse(changed(values(tmp_path), "kubeconfig.file", str(tmp_path / "none")), ROOT)
    with pytest.raises(config.ConfigError, match=r"kubeconfig.file: there is no file .*none"):
        CLOUD.make(stack).cluster()


@pytest.mark.e2e
def test_the_example_comes_up_on_the_engine_once_and_goes() -> None:
    """The mock of Kubernetes' provider takes the place of the cluster."""
    with Stack("lab", ROOT / "Pulumi.lab.yaml") as stack:
        stack.up()
        assert stack.up().changes == {}
        run = stack.destroy()
        assert stack.resources() == {}
    gone = run.finished("delete")
    assert gone.index(only(gone, "ConfigMap::ebb-platform")) < gone.index(only(gone, "Deployment::deployment-ebb-node-labels"))


def only(urns: list[str], what: str) -> str:
    (found,) = [one for one in urns if one.endswith(what)]
    return found


# ------------------------------------------------------------------------------------------ ebb:instanceTypes on every cloud


@pytest.mark.parametrize(
    ("own", "facts"),
    [
        pytest.param({"ebb.t4": {"usdPerHour": 0.3}}, (2, 8, 1, "T4", 0.3), id="a corrected price"),
        pytest.param({"ebb.two": {"like": "ebb.t4", "gpus": 2, "cpu": 4}}, (4, 8, 2, "T4", 0.526), id="like another"),
        pytest.param({"ebb.l4": {"like": "ebb.t4", "gpu": "L4"}}, (2, 8, 1, "L4", 0.526), id="with another GPU"),
        pytest.param({"own": {"cpu": 4, "memoryGiB": 16, "gpu": "L4"}}, (4, 16, 1, "L4", 0.0), id="of its own"),
    ],
)
def test_a_stack_adds_and_corrects_types(own: dict[str, Any], facts: tuple[Any, ...]) -> None:
    (name,) = own
    lines = [{"instanceTypes": [name], "capacity": "on-demand", "max": 1}]
    stack = config.parse(settings() | {"instanceTypes": own, "nodeGroups": lines}, ROOT)
    (found,) = catalog.machines(stack, stack.node_groups[0])
    assert (found.cpu, found.memory_gib, found.gpus, found.gpu_type, found.usd_per_hour) == facts
    assert catalog.by_name("local", "ebb.t4") != found, "the catalog itself stays as it is"


def test_what_a_type_of_ones_own_must_say() -> None:
    with pytest.raises(config.ConfigError) as refused:
        config.parse(settings() | {"instanceTypes": {"own": {"cpu": 4}, "ebb.x": {"like": "ebb.t5"}}}, ROOT)
    words = str(refused.value)
    assert "instanceTypes.own.memoryGiB: is missing" in words
    assert "name one that it is `like`" in words
    assert "instanceTypes.ebb.x.like" in words
    assert "ebb.t4" in words
