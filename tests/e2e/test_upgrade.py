"""Ebb is upgraded under jobs that train: up by an older revision, then by this one. `make prove-upgrade FROM=REVISION`.

The Kubernetes stays; what changes is all that `pulumi up` puts there, by the older revision's stack file. A job's workers keep
the image and the program that they were submitted with.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from devcluster.commands import say
from devcluster.settings import CHECKOUT
from ebb.api.contract import LABEL_JOB
from testing import exactness
from tests.e2e.conftest import Object, Platform
from tests.e2e.test_manager_lost import longest_pause
from tests.e2e.test_platform import NAMESPACE, TRAINER, job, output_of, steps_of
from tests.figures import report

pytestmark = pytest.mark.proof
LONGEST_SECONDS = 400.0


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A checkout of the revision in EBB_UPGRADE_FROM, with an environment of its own."""
    folder = tmp_path / "older"
    folder.mkdir()
    archive = subprocess.run(["git", "archive", os.environ["EBB_UPGRADE_FROM"]], cwd=CHECKOUT, check=True, capture_output=True)
    subprocess.run(["tar", "x"], cwd=folder, input=archive.stdout, check=True)
    say("making the environment of the older revision")
    subprocess.run(["make", "--silent", ".venv/stack"], cwd=folder, check=True)
    return folder


@pytest.fixture
def platforms(older: Path, tmp_path: Path) -> Iterator[tuple[Platform, Platform]]:
    """The same stack by the commands of the older revision, which has brought it up, and by ours."""
    before = Platform(tmp_path, "upgrade", says=True, checkout=older)
    after = Platform(tmp_path, "upgrade", says=True)
    with before.on_a_devcluster():
        settings: Object = yaml.safe_load((older / "Pulumi.local.yaml").read_text())
        settings["config"]["ebb:local"]["kubeconfig"] = str(before.kubeconfig)
        before.bring_up(settings)
        yield before, after


def submit(platform: Platform, name: str, gpus: int) -> Path:
    platform.ebb("submit", "--name", name, "--gpus", str(gpus), "--gpu", "T4", "--min", "1", "--",
                 *TRAINER, "--epochs", "1000", "--ledger", "--log-every", "1", "--min-step-seconds", "0.2")  # fmt: skip
    return output_of(platform, name)


def workers(platform: Platform, name: str) -> dict[str, str]:
    """The UIDs of a job's pods, by name."""
    found = platform.get("pods", "-n", NAMESPACE, "-l", f"{LABEL_JOB}={name}")["items"]
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in found}


def trains_with(output: Path, size: int) -> bool:
    return bool(steps := steps_of(output)) and steps[-1]["world_size"] == size


def test_jobs_train_through_an_upgrade(platforms: tuple[Platform, Platform]) -> None:
    older, newer = platforms
    outputs = {name: submit(older, name, gpus) for name, gpus in (("pair", 2), ("alone", 1), ("stopped", 1))}
    older.until("all three train", lambda: all(steps_of(one)[5:] for one in outputs.values()), seconds=LONGEST_SECONDS)
    older.until("the pair has two workers", lambda: trains_with(outputs["pair"], 2))
    older.ebb("stop", "stopped")
    older.until("the third is stopped", lambda: not workers(older, "stopped"))
    pods, at = {name: workers(older, name) for name in outputs}, {name: steps_of(one)[-1] for name, one in outputs.items()}

    began = time.time()
    newer.box("up")  # our images
    newer.pulumi("up", "--yes", "--skip-preview")
    seconds = time.time() - began
    newer.kubectl("rollout", "status", "deployment", "-n", "ebb-system", "--timeout=180s")
    newer.kubectl("rollout", "status", "statefulset", "-n", "ebb-system", "--timeout=180s")
    assert "unchanged" in newer.pulumi("preview", "--expect-no-changes")
    later = submit(newer, "later", 1)
    newer.until("a new job trains", lambda: steps_of(later)[5:], seconds=LONGEST_SECONDS)
    pauses = {name: longest_pause(steps_of(outputs[name]), began, time.time()) for name in ("pair", "alone")}
    steps = {name: sum(one["time"] > began for one in steps_of(outputs[name])) for name in pauses}
    assert {name: workers(newer, name) for name in outputs} == pods, "no worker was replaced"
    assert all(steps_of(outputs[name])[-1]["generation"] == at[name]["generation"] for name in pauses), "no worker noticed"

    newer.ebb("resume", "stopped")
    newer.until("the stopped job goes on", lambda: steps_of(outputs["stopped"])[-1]["generation"] > at["stopped"]["generation"],
                seconds=LONGEST_SECONDS)  # fmt: skip
    resumed = next(one for one in steps_of(outputs["stopped"]) if one["generation"] > at["stopped"]["generation"])
    assert resumed["step"] > at["stopped"]["step"], "from its checkpoint"

    (lost, *_) = sorted(pods["pair"])
    generation = steps_of(outputs["pair"])[-1]["generation"]
    killed = time.time()
    newer.box("reclaim", newer.get("pod", lost, "-n", NAMESPACE)["spec"]["nodeName"], "--no-notice")
    newer.until("training goes on", lambda: steps_of(outputs["pair"])[-1]["generation"] > generation)
    newer.until("the pair has two workers again", lambda: trains_with(outputs["pair"], 2), seconds=LONGEST_SECONDS)
    again = time.time() - killed
    assert older.ebb("status", "pair"), "yesterday's command line on the laptop"
    newer.ebb("stop", "pair")
    newer.until("it is stopped", lambda: not workers(newer, "pair"))
    last = steps_of(outputs["pair"])[-1]
    verdict = exactness.check(outputs["pair"], unfinished=(last["generation"], last["step"]))
    report({
        "from": os.environ["EBB_UPGRADE_FROM"],
        "up_seconds": round(seconds, 1),
        "longest_pause_seconds": {name: round(one, 2) for name, one in pauses.items()},
        "steps_meanwhile": steps,
        "full_size_after_a_loss_seconds": round(again, 1),
        "samples_lost": verdict.samples_lost,
        "samples_repeated": verdict.samples_repeated,
    })  # fmt: skip
    assert (verdict.samples_lost, verdict.samples_repeated) == (0, 0)
    assert job(newer, "pair")["status"]["reclaims"] == 1
    newer.pulumi("destroy", "--yes", "--skip-preview")
