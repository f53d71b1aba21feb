"""Jobs in an image that is not ours: trained, told to leave, killed and finished by what `ebb submit --image` sends along.

One image (testing/foreign_images.py), twice, as two users, on a stack of its own: `make prove-image`.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.commands import say
from devcluster.settings import CHECKOUT, EBB_HOME
from testing.foreign_images import DEBIAN, build
from tests.e2e.conftest import Object, Platform
from tests.e2e.test_platform import NAMESPACE, job, output_of, state, steps_of
from tests.figures import report

pytestmark = pytest.mark.proof
# Slow until the test has seen enough.
PROGRAM = """
import importlib.util, json, os, shutil, sys, time
from pathlib import Path
import torch
from ebb import elastic

output = Path(os.environ["EBB_OUTPUT_DIR"])
if os.environ["RANK"] == "0":
    facts = {"python": sys.version.split()[0], "torch": torch.__version__, "user": os.getuid(), "group": os.getgid()}
    facts |= {"pip": bool(importlib.util.find_spec("pip")), "shell": bool(shutil.which("sh") or shutil.which("bash"))}
    facts |= {"writable_root": os.access("/usr", os.W_OK) or os.statvfs("/").f_flag & os.ST_RDONLY == 0}
    (output / "facts.json").write_text(json.dumps(facts))
with elastic.start(global_batch=8, epochs=20, log_every=1) as run:
    data = torch.utils.data.TensorDataset(torch.randn(400, 4), torch.randn(400, 1))
    model = run.distribute(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    run.register_state(model=model, optimizer=optimizer)
    for step in run.steps(run.loader(data)):
        for x, y in step:
            step.backward(torch.nn.functional.mse_loss(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0 if (output / "enough").exists() else 1)
"""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The flags that ask for the image, and the facts that the program must find there."""

    options: tuple[str, ...]
    facts: Object


# The owner of the shared volumes is group 1000, which workers have that name no other.
CASES = {
    "any-user": Asked(options=("--run-as", "1234"), facts={"user": 1234, "group": 1000, "writable_root": False}),
    "its-own-user": Asked(
        options=("--run-as", "image", "--writable-root"), facts={"user": 4321, "group": 1000, "writable_root": True}
    ),
}


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    it = Platform(tmp_path_factory.mktemp("image"), "image", says=True)
    archive = asyncio.run(build(DEBIAN, EBB_HOME / "images" / "foreign"))
    settings = yaml.safe_load((CHECKOUT / "Pulumi.local.yaml").read_text())
    settings["config"]["ebb:local"]["kubeconfig"] = str(it.kubeconfig)
    settings["config"]["ebb:digits"] = False
    with it.on_a_devcluster():
        it.box("load", str(archive))
        it.bring_up(settings)
        yield it


@pytest.fixture(scope="module")
def figures() -> Iterator[dict[str, Any]]:
    """By case; reported in the end."""
    found: dict[str, Any] = {}
    yield found
    report(found)


@pytest.mark.parametrize("case", CASES)
def test_a_job_in_an_image_that_is_not_ours(box: Platform, tmp_path: Path, figures: dict[str, Any], case: str) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    began = time.monotonic()
    box.ebb("submit", "--name", case, "--gpus", "2", "--gpu", "T4", "--min", "1", "--image", DEBIAN.reference,
            *CASES[case].options, "--code", str(tmp_path), "--", "python3", "train.py")  # fmt: skip
    output, seconds = output_of(box, case), {}

    def two_train(after: int) -> bool:
        return len([step for step in steps_of(output) if step["world_size"] == 2 and step["generation"] > after]) > 3

    def reached(what: str) -> None:
        seconds[what] = round(time.monotonic() - began, 1)
        say(f"{case}: {what} {seconds[what]}, at step {steps_of(output)[-1]['step']}")

    box.until("two workers train", lambda: two_train(0), seconds=600)
    reached("submit_to_training_seconds")
    for event, options in (("notice", ()), ("kill", ("--no-notice",))):
        generation = steps_of(output)[-1]["generation"]
        node = box.get("pod", f"{case}-worker-1", "-n", NAMESPACE)["spec"]["nodeName"]
        began = time.monotonic()
        box.box("reclaim", node, *options)
        box.until(f"two workers train after a {event}", partial(two_train, generation), seconds=600)
        reached(f"{event}_to_full_size_seconds")
    (output / "enough").touch()
    box.until("the job succeeds", lambda: state(box, case) == "Succeeded", seconds=600)
    steps = [int(step["step"]) for step in steps_of(output)]
    facts = json.loads((output / "facts.json").read_text())
    figures[case] = {**facts, **seconds, "steps": max(steps), "steps_redone": len(steps) - len(set(steps))}
    assert facts == {**facts, **CASES[case].facts, "pip": False, "shell": False}
    assert facts["python"].startswith("3.13.")
    assert facts["torch"].startswith("2.6.")
    assert (min(steps), max(steps)) == (1, 1000)
    assert len(set(steps)) >= 999, "each kill can take a line of metrics with it, where it hits rank 0"
    assert job(box, case)["status"]["reclaims"] >= 2
    assert f"torch {facts['torch']} is older than 2.9" in box.ebb("logs", case)
    box.ebb("delete", case)
