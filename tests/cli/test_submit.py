"""`ebb submit`: the manifest whole, how GPUs become workers, and every refusal word for word."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from ebb.api.platform import Platform, parse
from ebb.cli.app import app
from ebb.client.submission.fit import Fit, find_fit, memory_bytes, price
from ebb.client.submission.jobfile import generated_name, request_of
from ebb.client.submission.manifest import manifest
from ebb.client.submission.request import Request, launcher_arguments
from ebb.controller.reconciler.types import CreatePod
from tests.cli.world import NS, TAINTS, FakeKube, elastic_job, node_group, platform_map, session
from tests.looks import look
from tests.pod_security import violations

GOLDEN = Path(__file__).with_name("golden") / "submit.yaml"
EIGHT = node_group(
    "a100", "local-a", gpuType="A100", gpusPerNode=8, cpu=96, memoryGiB=1152, pricePerHourOnDemand=32.77, max=2,
    labels={"ebb.dev/gpu-type": "A100"},
)  # fmt: skip
EFA: dict[str, Any] = {
    "name": "EFA",
    "resources": {"vpc.amazonaws.com/efa": "4", "hugepages-2Mi": "5120Mi"},
    "environment": {"FI_PROVIDER": "efa"},
}
FAST, FAST_ON_DEMAND, SLOW = (
    {**EIGHT, "name": "fast", "network": EFA},
    {**EIGHT, "name": "fast-on-demand", "capacityType": "on-demand", "taints": TAINTS[:1], "network": EFA},
    {**EIGHT, "name": "slow"},
)
FOUR = node_group("t4x4", "local-b", gpusPerNode=4, cpu=48, memoryGiB=192, pricePerHourOnDemand=3.912, noticeSeconds=30)


def platform(*extra: dict[str, Any]) -> Platform:
    return parse(platform_map(*extra)["data"])


def request(**changes: Any) -> Request:
    return Request(**{"name": "digits", "arguments": ("-m", "trainer"), **changes})


def invoke(*words: str, kube: FakeKube | None = None) -> Result:
    environment = {"COLUMNS": "80", "EBB_USER": "ada"}
    return CliRunner().invoke(app, list(words), obj=session(kube or FakeKube(platform_map())), env=environment)


def test_manifest_is_the_golden_one() -> None:
    result = invoke(
        "submit", "--name", "digits", "--gpus", "2", "--gpu", "T4", "--min", "1", "--max", "4", "--env", "LR=0.1", "--shm", "1Gi",
        "--dry-run", "--", "python", "-m", "trainer", "--data", "/mnt/data/digits",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert result.stdout == GOLDEN.read_text()


SECURE = {
    "box": ((), request(gpus=2)),
    "whole machines": ((EIGHT,), request(gpu="A100", gpus=16)),
    "the user's own image": ((), request(image="example.org/mine:1", env={"A": "1"}, shm="1Gi")),
}


@pytest.mark.parametrize(("groups", "wanted"), SECURE.values(), ids=SECURE)
def test_pod_passes_pod_security_restricted(groups: tuple[dict[str, Any], ...], wanted: Request) -> None:
    found = platform(*groups)
    body = manifest(wanted, find_fit(wanted, found), found, NS)
    assert violations(body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]) == []


@pytest.mark.parametrize("key", ["runAsNonRoot", "seccompProfile"])
def test_the_checker_sees_what_is_missing(key: str) -> None:
    wanted = request()
    pod = manifest(wanted, find_fit(wanted, platform()), platform(), NS)["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    del pod["securityContext"][key]
    del pod["containers"][0]["securityContext"]["capabilities"]
    pod["volumes"].append({"name": "host", "hostPath": {"path": "/"}})
    assert violations(pod) == ["volume host", f"elasticjob-worker: {key}", "elasticjob-worker: capabilities.drop"]


SPLITS = {
    "one machine each": ((), request(gpus=2, max_gpus=4), (1, 2, 1, 4)),
    "whole machines": ((EIGHT,), request(gpu="A100", gpus=16), (8, 2, 1, 2)),
    "part of one machine": ((EIGHT,), request(gpu="a100", gpus=2), (2, 1, 1, 1)),
    "the largest that divides": ((FOUR,), request(gpus=8, min_gpus=4), (4, 2, 1, 2)),
    "the smaller where min says so": ((FOUR,), request(gpus=4, min_gpus=1), (1, 4, 1, 4)),
}


@pytest.mark.parametrize(("groups", "wanted", "split"), SPLITS.values(), ids=SPLITS)
def test_gpus_are_split_by_machines(
    groups: tuple[dict[str, Any], ...], wanted: Request, split: tuple[int, int, int, int]
) -> None:
    fit = find_fit(wanted, platform(*groups))
    assert (fit.gpus_per_worker, fit.workers, fit.min_workers, fit.max_workers) == split


def test_share_is_the_smallest_of_all_groups_that_may_carry_the_worker() -> None:
    fit = find_fit(request(gpus=4, min_gpus=1), platform(FOUR))
    assert [group.name for group in fit.groups] == ["spot-t4-local-a", "spot-t4-local-b", "spot-t4-local-c", "t4x4"]
    assert fit.cpu_millis == 3600
    assert fit.memory_mib == 16 * 1024 * 3 // 4
    assert fit.shm_mib == fit.memory_mib // 4


OLD = node_group("v100", "local-a", gpuType="V100", trainerImage="ebb/trainer:cuda12")
NEW = node_group("v100-new", "local-b", gpuType="V100")


@pytest.mark.parametrize(
    ("groups", "own", "image", "kept"),
    [
        pytest.param((OLD,), None, "ebb/trainer:cuda12", ["v100"], id="the group's"),
        pytest.param((OLD, NEW), None, "ebb/trainer:cuda12", ["v100"], id="two images: the first group's"),
        pytest.param((NEW, OLD), None, "localhost/ebb/trainer:abc", ["v100-new"], id="two images: the stack's comes first"),
        pytest.param((OLD, NEW), "mine:1", "mine:1", ["v100", "v100-new"], id="the user's own runs everywhere"),
    ],
)
def test_a_gpu_that_needs_another_torch_gets_its_image(
    groups: tuple[dict[str, Any], ...], own: str | None, image: str, kept: list[str]
) -> None:
    wanted, found = request(gpu="V100", image=own), platform(*groups)
    fit = find_fit(wanted, found)
    assert [group.name for group in fit.groups] == kept
    body = manifest(wanted, fit, found, NS)
    assert body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["image"] == image


def test_what_a_machine_offers_is_the_stacks_to_say() -> None:
    fit = find_fit(request(gpu="A100", gpus=8), platform({**EIGHT, "allocatableMemoryGiB": 1095.25}))
    assert fit.cpu_millis == 86400
    assert fit.memory_mib == int(1094.75 * 1024)


PRICES = {
    "spot": (request(gpus=2), (), (2, 0.3156, 1.052)),
    "on-demand": (
        request(gpus=2, capacity="on-demand"),
        (node_group("od", "local-a", capacityType="on-demand"),),
        (2, 1.052, 1.052),
    ),
    "part of a machine costs all of it": (request(gpu="A100", gpus=2), (EIGHT,), (1, 9.831, 32.77)),
    "the cheapest group": (request(gpus=2), (node_group("cheap", "local-c", pricePerHourOnDemand=0.1),), (2, 0.06, 0.2)),
}


@pytest.mark.parametrize(("wanted", "groups", "costs"), PRICES.values(), ids=PRICES)
def test_price(wanted: Request, groups: tuple[dict[str, Any], ...], costs: tuple[int, float, float]) -> None:
    fit = find_fit(wanted, platform(*groups))
    found = price(fit, fit.workers)
    assert (found.machines, round(found.usd_per_hour, 4), round(found.on_demand_usd_per_hour, 4)) == costs


COMMANDS = {
    "module": (["-m", "trainer", "--epochs", "2"], ("-m", "trainer", "--epochs", "2")),
    "python script": (["python", "train.py", "--lr", "0.1"], ("train.py", "--lr", "0.1")),
    "versioned python with -u": (["/usr/bin/python3.11", "-u", "train.py"], ("train.py",)),
    "torchrun with flags": (["torchrun", "--max-restarts=1", "train.py"], ("--max-restarts=1", "train.py")),
    "a script named like python": (["pythonic.py"], ("pythonic.py",)),
}


@pytest.mark.parametrize(("typed", "arguments"), COMMANDS.values(), ids=COMMANDS)
def test_commands_as_people_type_them(typed: list[str], arguments: tuple[str, ...]) -> None:
    assert launcher_arguments(typed) == arguments


NAMES = {
    "module": (("-m", "trainer.digits"), "digits-ab12"),
    "script": (("--nproc=1", "jobs/Train_Net.py", "--x", "y.py"), "train-net-ab12"),
    "starts with a digit": (("3d.py",), "job-3d-ab12"),
    "nothing usable": (("-m",), "job-ab12"),
    "very long": (("x" * 80 + ".py",), "x" * 30 + "-ab12"),
}


@pytest.mark.parametrize(("arguments", "name"), NAMES.values(), ids=NAMES)
def test_names_are_made_from_the_program(arguments: tuple[str, ...], name: str) -> None:
    assert generated_name(arguments, "ab12") == name


@pytest.mark.parametrize(("text", "count"), [("512Mi", 2**29), ("1.5Gi", 3 * 2**29), ("2G", 2 * 10**9), ("100", 100)])
def test_memory_amounts(text: str, count: int) -> None:
    assert memory_bytes(text) == count


NETWORKS: dict[str, tuple[tuple[dict[str, Any], ...], dict[str, Any], str]] = {
    "whole machines": ((FAST,), {"gpus": 16}, "EFA"),
    "spot, then on-demand": ((FAST, FAST_ON_DEMAND), {"gpus": 16, "capacity": "spot-then-on-demand"}, "EFA"),
    "the other zone, too": ((FAST, {**FAST, "name": "b", "zone": "local-b"}), {"gpus": 16}, "EFA"),
    "part of a machine": ((FAST,), {"gpus": 4}, ""),
    "not all machines": ((FAST, SLOW), {"gpus": 16}, ""),
    "machines without": ((EIGHT,), {"gpus": 16}, ""),
}


@pytest.mark.parametrize(("groups", "wanted", "network"), NETWORKS.values(), ids=NETWORKS)
def test_what_is_submitted_gets_the_fast_network_that_was_said(
    groups: tuple[dict[str, Any], ...], wanted: dict[str, Any], network: str
) -> None:
    """The pods that the controller makes of what `ebb submit` sends; sweeps and Hydra send the same."""
    found = platform(*groups)
    fit = find_fit(request(gpu="A100", **wanted), found)
    body = manifest(request(gpu="A100", **wanted), fit, found, NS)
    body["metadata"] |= {"uid": "0123456789", "generation": 1, "creationTimestamp": "2026-11-21T12:00:00Z"}
    pods = [action.body for action in look(body, platform=found).actions if isinstance(action, CreatePod)]
    containers = [pod["spec"]["containers"][0] for pod in pods]
    assert containers
    for one in containers:
        assert (one["resources"]["limits"].items() >= EFA["resources"].items()) == bool(network)
    assert fit.network == network


def test_a_fast_network_that_only_some_zones_have_is_not_promised() -> None:
    assert find_fit(request(gpu="A100", gpus=16), platform(FAST, {**SLOW, "zone": "local-b"})).network == ""


def test_plan_names_the_fast_network() -> None:
    kube = FakeKube(platform_map(FAST))
    result = invoke(
        "submit", "--name", "j", "--gpu", "A100", "--gpus", "16", "--yes", "--no-code", "--", "python", "a.py", kube=kube
    )
    assert "  machines  g4dn.xlarge (spot) in local-a\n  network   EFA\n" in result.stdout, result.stderr


def test_plan_is_shown_before_the_job_is_sent() -> None:
    kube = FakeKube(platform_map())
    result = invoke(
        "submit", "--name", "digits", "--gpus", "2", "--max", "4", "--data", "digits", "--", "-m", "trainer", kube=kube
    )
    assert result.exit_code == 0, result.stderr
    assert result.stdout == (
        "digits on local\n"
        "  workers   2, from 1 to 4; each 1 T4, 3.6 CPUs, 12.0 GiB of memory\n"
        "  machines  g4dn.xlarge (spot) in one of local-a, local-b, local-c\n"
        "  now       needs 2 machines that are booted in about 5 min\n"
        "  price     $0.32 per hour on spot (assumed; $1.05 on-demand); up to $0.63 with\n"
        "            4 workers\n"
        "  at most   no limit; --max-cost or --deadline sets one\n"
        "  program   -m trainer --data /mnt/data/digits\n"
        "digits is submitted. Watch: ebb status digits --watch, ebb logs -f digits\n"
    )
    assert kube.sent[-1] == ("POST", f"/apis/elastic.pytorch.org/v1alpha1/namespaces/{NS}/elasticjobs")


def test_a_taken_name_is_said() -> None:
    result = invoke("submit", "--name", "digits", "--no-code", "--", "train.py", kube=FakeKube(platform_map(), elastic_job()))
    sentence = "name 'digits' is taken: choose another --name, or remove that job with `ebb delete digits`."
    assert (result.exit_code, result.stderr) == (1, f"ebb: {sentence}\n")


def test_zone_and_capacity_go_into_the_job() -> None:
    result = invoke("submit", "--zone", "local-b", "--spot", "--dry-run", "--no-code", "--", "train.py")
    spec = yaml.safe_load(result.stdout)["spec"]
    assert spec["placement"] == {"gpuType": "T4", "capacity": "spot", "zone": "local-b"}
    assert "topology.kubernetes.io/zone" not in spec["replicaSpecs"]["Worker"]["template"]["spec"]["nodeSelector"]


FLEX = node_group("flex", "local-b", gpuType="H100", capacityType="flex-start", maxAgeSeconds=172_800, taints=TAINTS[:1])


@pytest.mark.parametrize(
    ("said", "groups", "capacity"),
    [
        pytest.param("", (FLEX,), "flex-start", id="the-only-way"),
        pytest.param("", (FLEX, {**FLEX, "name": "spot", "capacityType": "spot"}), "spot", id="spot-is-there-at-once"),
        pytest.param(
            "capacity: flex-start", (FLEX, {**FLEX, "name": "spot", "capacityType": "spot"}), "flex-start", id="asked-for"
        ),
        pytest.param("", (FLEX, {**FLEX, "name": "od", "capacityType": "on-demand"}), "flex-start", id="cheaper-than-on-demand"),
    ],
)
def test_machines_that_are_waited_for(tmp_path: Path, said: str, groups: tuple[dict[str, Any], ...], capacity: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"gpu: H100\n{said}\ncode: false\ncommand: train.py\n")
    result = invoke("submit", "-f", str(file), "--dry-run", kube=FakeKube(platform_map(*groups)))
    assert result.exit_code == 0, result.stderr
    spec = yaml.safe_load(result.stdout)["spec"]
    assert spec["placement"] == {"gpuType": "H100", "capacity": capacity, "zone": "single"}
    pod = spec["replicaSpecs"]["Worker"]["template"]["spec"]
    assert pod["nodeSelector"] == {"ebb.dev/gpu-type": "H100", "ebb.dev/capacity-type": capacity}


def test_a_job_file_and_flags_that_win(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: digits\ngpus: 2\nmax: 4\ngpu: T4\nenv: {LR: 0.1, SEED: 1}\ncommand: python train.py --lr 0.1\n")
    found = request_of(yaml.safe_load(file.read_text()), {"gpus": 3, "env": ["SEED=2"]}, (), "ab12")
    assert found == Request(
        name="digits", arguments=("train.py", "--lr", "0.1"), gpus=3, max_gpus=4, gpu="T4", env={"LR": "0.1", "SEED": "2"}
    )
    assert invoke("submit", "-f", str(file), "--no-code", "--dry-run").exit_code == 0


def test_an_elastic_job_goes_as_it_is(tmp_path: Path) -> None:
    file, kube = tmp_path / "job.yaml", FakeKube(platform_map())
    body = elastic_job("old")
    del body["metadata"]["namespace"]
    file.write_text(yaml.safe_dump(body))
    result = invoke("submit", "-f", str(file), kube=kube)
    assert result.exit_code == 0, result.stderr
    assert kube.sent[-1] == ("POST", f"/apis/elastic.pytorch.org/v1alpha1/namespaces/{NS}/elasticjobs")


def test_fit_names_its_places() -> None:
    fit: Fit = find_fit(request(), platform(node_group("other", "local-a", instanceType="g4dn.2xlarge")))
    assert (fit.zones, fit.instance_types) == (("local-a", "local-b", "local-c"), ("g4dn.xlarge", "g4dn.2xlarge"))
