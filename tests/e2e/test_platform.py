"""The whole platform on a devcluster: each test is something that a user does, in the order in which a day goes.

They share one box (see conftest.py), so each leaves the platform as it found it. The last ones destroy the stack and the box.
"""

import json
import subprocess
from functools import partial
from pathlib import Path

import pytest
import yaml

from devcluster.settings import CHECKOUT, Box
from testing import exactness
from tests.e2e.conftest import BOX, Object, Platform
from tests.elastic.images import ARCH

pytestmark = [pytest.mark.e2e, pytest.mark.smoke]
NAMESPACE = "elastic-job"
TRAINER = ["-m", "trainer", "--data", "/mnt/data/digits", "--arch", ARCH, "--image-size", "32", "--global-batch", "64"]


def job(platform: Platform, name: str) -> Object:
    return platform.get("elasticjob", name, "-n", NAMESPACE)


def facts(platform: Platform) -> Object:
    found: Object = json.loads(platform.get("configmap", "ebb-platform", "-n", "ebb-system")["data"]["platform.json"])
    return found


def state(platform: Platform, name: str) -> str:
    return str(job(platform, name).get("status", {}).get("state", ""))


def output_of(platform: Platform, name: str) -> Path:
    uid = job(platform, name)["metadata"]["uid"]
    return Box.load(platform.box_name).volumes / "shared" / "output" / NAMESPACE / f"{name}-{uid[:8]}"


def steps_of(folder: Path) -> list[Object]:
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_nothing_changes_after_up(platform: Platform) -> None:
    said = platform.pulumi("preview", "--expect-no-changes")
    assert "unchanged" in said


def test_one_groups_max_is_two_updates(platform: Platform) -> None:
    settings = platform.settings()
    [line] = settings["config"]["ebb:nodeGroups"]
    first, *others = settings["config"]["ebb:zones"]
    changed = yaml.safe_load(yaml.safe_dump(settings))
    changed["config"]["ebb:nodeGroups"] = [{**line, "zones": [first], "max": line["max"] + 1}, {**line, "zones": others}]
    platform.configure(changed)
    preview = json.loads(platform.pulumi("preview", "--json"))
    platform.configure(settings)
    steps = [step for step in preview["steps"] if step["op"] != "same"]
    assert sorted((step["op"], step["urn"].rsplit("::", 1)[1]) for step in steps)[:1]
    assert preview["changeSummary"].get("update") == 2
    assert any("ebb-platform" in step["urn"] for step in steps)
    assert any("NodeGroup" in step["urn"] for step in steps)


def test_refresh_finds_drift_and_up_mends_it(platform: Platform) -> None:
    label = "pod-security.kubernetes.io/enforce"
    platform.kubectl("label", "namespace", NAMESPACE, f"{label}-")
    said = platform.pulumi("refresh", "--yes", "--skip-preview")
    assert "1 updated" in said
    platform.pulumi("up", "--yes", "--skip-preview")
    assert platform.get("namespace", NAMESPACE)["metadata"]["labels"][label] == "baseline"


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        pytest.param("ebb:nodegroups", [], "nodeGroups", id="misspelt key"),
        pytest.param("ebb:nodeGroups", [{"gpu": "T5", "max": 1}], "T4", id="unknown GPU type"),
    ],
)
def test_a_wrong_stack_file_is_refused_before_anything_changes(
    platform: Platform, key: str, value: object, sentence: str
) -> None:
    settings = platform.settings()
    changed = yaml.safe_load(yaml.safe_dump(settings))
    changed["config"][key] = value
    platform.configure(changed)
    said = platform.pulumi("up", "--yes", "--skip-preview", ok=False)
    platform.configure(settings)
    assert sentence in said
    assert "Traceback" not in said
    platform.pulumi("preview", "--expect-no-changes")


def test_a_killed_machine_costs_no_sample_and_a_second_job_has_machines_of_its_own(platform: Platform) -> None:
    platform.ebb("submit", "--name", "first", "--gpus", "2", "--gpu", "T4", "--min", "1", "--",
                 *TRAINER, "--epochs", "8", "--ledger", "--log-every", "1", "--min-step-seconds", "0.2")  # fmt: skip
    output = output_of(platform, "first")
    platform.until("two workers train", lambda: [s for s in steps_of(output) if s["world_size"] == 2][5:])

    before = {node["metadata"]["name"] for node in platform.nodes()}
    platform.ebb("submit", "--name", "second", "--gpus", "1", "--gpu", "T4", "--",
                 *TRAINER, "--epochs", "50", "--min-step-seconds", "0.2")  # fmt: skip
    more = platform.until("a machine for the second job", lambda: {n["metadata"]["name"] for n in platform.nodes()} - before)
    platform.ebb("delete", "second")
    platform.until("its machine leaves", lambda: not more & {n["metadata"]["name"] for n in platform.nodes()})

    pod = platform.get("pod", "first-worker-1", "-n", NAMESPACE)
    generation = steps_of(output)[-1]["generation"]
    platform.box("reclaim", pod["spec"]["nodeName"], "--no-notice")
    platform.until("training goes on", lambda: steps_of(output)[-1]["generation"] > generation)
    platform.until("the first job succeeds", lambda: state(platform, "first") == "Succeeded", seconds=400)
    verdict = exactness.check(output)
    assert (verdict.samples_lost, verdict.samples_repeated) == (0, 0)
    assert job(platform, "first")["status"]["reclaims"] >= 1
    listed = platform.ebb("list")
    assert "first" in listed
    assert max(map(len, listed.splitlines())) <= 80
    platform.ebb("delete", "first")
    platform.until("all spot machines leave", lambda: not platform.nodes())


def test_the_articles_job_file_needs_only_its_image(platform: Platform) -> None:
    """One claim at /mnt/efs with data/ and output/ in it, etcd-service:2379, nothing of Ebb. Its script was in its image."""
    shared = Box.load(BOX).volumes / "shared"
    (shared / "data" / "tiny-imagenet-200").mkdir()
    (shared / "data" / "main.py").write_text(
        "import os, pathlib, sys\n"
        "assert pathlib.Path(sys.argv[-1]).is_dir(), sys.argv\n"
        "said = dict(word.split('=') for word in sys.argv[1:-1])\n"
        "if os.environ['RANK'] == '0':\n"
        "    pathlib.Path(said['--checkpoint-file']).write_text(os.environ['WORLD_SIZE'])\n"
    )
    manifest = yaml.safe_load((CHECKOUT / "tests" / "workloads" / "articles" / "imagenet.yaml").read_text())
    [container] = manifest["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["image"] = facts(platform)["trainerImage"]
    container["args"][1] = "/mnt/efs/data/main.py"
    path = platform.folder / "imagenet.yaml"
    path.write_text(yaml.safe_dump(manifest))
    platform.kubectl("apply", "-f", str(path))
    platform.until("the article's job succeeds", lambda: state(platform, "imagenet") == "Succeeded")
    assert (shared / "output" / "checkpoint.pth").read_text() in ("1", "2")
    platform.kubectl("delete", "-f", str(path))


def test_four_loader_workers_fit_the_shared_memory_that_submit_gives(platform: Platform) -> None:
    platform.ebb("submit", "--name", "loaders", "--gpus", "1", "--gpu", "T4", "--",
                 *TRAINER, "--workers", "4", "--epochs", "1")  # fmt: skip
    platform.until("the job succeeds", lambda: state(platform, "loaders") == "Succeeded", seconds=300)
    assert "/dev/shm" in json.dumps(job(platform, "loaders")["spec"])
    platform.ebb("delete", "loaders")


def test_a_missing_data_folder_is_said_in_the_log(platform: Platform) -> None:
    platform.ebb("submit", "--name", "nodata", "--gpus", "1", "--gpu", "T4", "--", "-m", "trainer", "--data", "/mnt/data/nothing")
    platform.until("the job fails", lambda: state(platform, "nodata") == "Failed", seconds=300)
    assert "/mnt/data/nothing" in platform.ebb("logs", "nodata")
    platform.ebb("delete", "nodata")


def trains(folder: Path) -> bool:
    return len(steps_of(folder)) > 5


def checkpointed_step(folder: Path) -> int:
    """The step of the newest checkpoint, 0 without one. A checkpoint is there when its manifest is."""
    return max((int(json.loads(path.read_text())["step"]) for path in (folder / "checkpoints").glob("*.json")), default=0)


@pytest.mark.ends_platform(1)
def test_destroy_ends_a_running_and_a_pending_job_with_their_checkpoints(platform: Platform, tmp_path: Path) -> None:
    slow = [*TRAINER, "--epochs", "50", "--log-every", "1", "--min-step-seconds", "0.2", "--checkpoint-seconds", "3600",
            "--checkpoint-min-seconds", "3600"]  # fmt: skip
    zones = {str(group["zone"]) for group in facts(platform)["nodeGroups"]}
    outputs = {}
    for name in ("pending", "running"):
        platform.ebb("submit", "--name", name, "--gpus", "1", "--gpu", "T4", "--", *slow)
        outputs[name] = output_of(platform, name)
        platform.until(f"{name} trains", partial(trains, outputs[name]))
    for zone in sorted(zones):
        platform.box("exhaust", zone)
    node = platform.get("pod", "pending-worker-0", "-n", NAMESPACE)["spec"]["nodeName"]
    platform.box("reclaim", node, "--wait")
    assert checkpointed_step(outputs["pending"]) == steps_of(outputs["pending"])[-1]["step"], "the notice was not used"
    platform.until("it waits for a machine", lambda: state(platform, "pending") in ("Restarting", "Pending", "Created"))
    before = len(steps_of(outputs["running"]))
    (tmp_path / "value").write_text("hf_AbCdEfGhIjKl")
    platform.ebb("secret", "set", "left", "--from-file", str(tmp_path / "value"))  # the stack does not know of it

    platform.pulumi("destroy", "--yes", "--skip-preview")

    trained = steps_of(outputs["running"])
    assert len(trained) >= before
    assert checkpointed_step(outputs["running"]) == trained[-1]["step"], "destroy did not let the job write its checkpoint"
    names = {item["metadata"]["name"] for item in platform.get("namespaces")["items"]}
    assert not names & {"ebb-system", NAMESPACE}
    exported = json.loads(platform.run("bash", "-c", "source ./env && exec pulumi stack export --stack e2e"))
    assert exported["deployment"].get("resources") in (None, [])


@pytest.mark.ends_platform(2)
def test_down_leaves_nothing(platform: Platform) -> None:
    link, cgroup = Box.load(BOX).link, Box.load(BOX).cgroup
    platform.box("down")
    looks = {"ps": ["ps", "-eo", "args"], "namespaces": ["ip", "netns"], "links": ["ip", "-o", "link"], "mounts": ["mount"]}
    for what, command in looks.items():
        seen = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        left = [line for line in seen.splitlines() if f"boxes/{BOX}" in line or f"ebb.{BOX}" in line or f" {link}:" in line]
        assert not left, f"{what}: {left}"
    assert not list(Path("/sys/fs/cgroup").glob(f"*/{cgroup}"))
    assert not platform.kubeconfig.parent.exists()
