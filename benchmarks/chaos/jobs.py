"""The jobs of a run, drawn from its seed, and the end that each must come to whatever happens to it. Pure.

plan = draw(seed=7, number=3)      # plan.name, plan.workers, plan.ends
body = manifest(template, plan)    # template: what `ebb submit --dry-run` prints
"""

import copy
import random
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

SUCCEEDED, FAILED = "Succeeded", "Failed"
FAILING_EVERY = 4  # of so many jobs one is such that its program fails
BACKOFF_LIMIT = 2
STEP_SECONDS = 0.2  # at least; the cores of a busy machine make it more
SLOW_STEP_SECONDS = 0.5
GLOBAL_BATCH = 32
EPOCHS = (3, 6)  # of 47 steps each: 28 to 56 s where nothing happens and nobody else uses the cores
DATA = "/mnt/data/chaos"  # of the devcluster's shared volumes, but not the one that is filled
ARCH = "shufflenet_v2_x0_5"  # with batch norm, and small: the machines share this one's cores
FAILING = f"{DATA}/fails.py"


@dataclass(frozen=True, kw_only=True)
class JobPlan:
    """One job. `ends` is the state that it must end in."""

    name: str
    workers: int
    epochs: int
    ends: str
    step_seconds: float = STEP_SECONDS


def draw(*, seed: int, number: int, slow: bool = False) -> JobPlan:
    """The job with this number, whatever became of those before it. A slow one is still there when a broken link is whole, and
    has one worker, which trains on behind it."""
    rng = random.Random(f"chaos {seed} job {number}")  # noqa: S311 - to be repeated
    workers, epochs, step = 1 if slow else 1 + number % 2, rng.randint(*EPOCHS), SLOW_STEP_SECONDS if slow else STEP_SECONDS
    if number % FAILING_EVERY == FAILING_EVERY - 1:
        return JobPlan(name=f"chaos-{number}", workers=1, epochs=0, ends=FAILED)
    return JobPlan(name=f"chaos-{number}", workers=workers, epochs=epochs, ends=SUCCEEDED, step_seconds=step)


def manifest(template: Object, plan: JobPlan, *, env: dict[str, str]) -> Object:
    """The ElasticJob as its author would apply it."""
    body = copy.deepcopy(template)
    body["metadata"]["name"] = plan.name
    spec = body["spec"]
    spec |= {"minReplicas": 1, "maxReplicas": plan.workers, "backoffLimit": BACKOFF_LIMIT}
    worker = spec["replicaSpecs"]["Worker"]
    worker["replicas"] = plan.workers
    [container] = worker["template"]["spec"]["containers"]
    container["args"] = [FAILING] if plan.ends == FAILED else _training(plan)
    container["env"] = [*container.get("env", ()), *({"name": name, "value": value} for name, value in env.items())]
    return body


def _training(plan: JobPlan) -> list[str]:
    given = {
        "data": "/mnt/data/digits", "arch": ARCH, "image-size": "32", "global-batch": str(GLOBAL_BATCH), "log-every": "1",
        "epochs": str(plan.epochs), "min-step-seconds": str(plan.step_seconds), "checkpoint-seconds": "5", "workers": "0",
    }  # fmt: skip
    return ["-m", "trainer", *(word for name, value in given.items() for word in (f"--{name}", value)), "--ledger"]
