"""A manager machine is killed while two jobs train: they train on, and control comes back. `make prove-manager`.

The devcluster's machines take a minute to boot here, as a cloud's do, and etcd is held to its zone, as a cloud's disk holds it.
Unlike in a cloud, a machine that died is noticed within a second, and its Node goes at once.
"""

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from devcluster.cloud.records import ZONE_LABEL
from devcluster.machines import lifecycle
from devcluster.settings import CHECKOUT, Box
from ebb.api.contract import LABEL_JOB, LABEL_NODE_GROUP, MANAGER_GROUP
from tests.e2e.conftest import Object, Platform
from tests.e2e.test_platform import NAMESPACE, TRAINER, output_of, steps_of
from tests.figures import report

pytestmark = pytest.mark.proof
SYSTEM, JOBS, LATER = "ebb-system", ("first", "second"), "third"
MANAGERS = f"{LABEL_NODE_GROUP}={MANAGER_GROUP}"
BOOT_SECONDS = 60.0
LONGEST_SECONDS = 400.0
figures: dict[int, Object] = {}  # by the number of manager machines
LOOK_UP = "import socket; print(socket.getaddrinfo('etcd.ebb-system.svc.cluster.local', 2379)[0][4][0])"


def stack_file(platform: Platform, managers: int) -> Object:
    settings: Object = yaml.safe_load((CHECKOUT / "Pulumi.local.yaml").read_text())
    settings["config"]["ebb:local"] |= {"kubeconfig": str(platform.kubeconfig), "bootSeconds": BOOT_SECONDS}
    settings["config"]["ebb:manager"]["count"] = managers
    return settings


def ready(platform: Platform, selector: str, namespace: str = SYSTEM) -> list[Object]:
    """The pods that are ready, of those that nobody has deleted."""
    pods: list[Object] = platform.get("pods", "-n", namespace, "-l", selector)["items"]
    return [one for one in pods if "deletionTimestamp" not in one["metadata"] and _is_ready(one)]


def _is_ready(item: Object) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in item["status"].get("conditions", []))


@pytest.fixture(params=[1, 2], ids=["one manager", "two managers"])
def stack(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Platform, int]]:
    it = Platform(tmp_path, "manager")
    with it.on_a_devcluster():
        it.bring_up(stack_file(it, request.param))
        held = {"spec": {"template": {"spec": {"nodeSelector": {ZONE_LABEL: it.settings()["config"]["ebb:manager"]["zone"]}}}}}
        it.kubectl("patch", "statefulset", "etcd", "-n", SYSTEM, "-p", json.dumps(held))
        it.kubectl("rollout", "status", "statefulset/etcd", "-n", SYSTEM, "--timeout=120s")
        yield it, request.param


@dataclass
class Outage:
    """The seconds from the loss of a machine until each of several things was so."""

    began: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)

    def watch(self, conditions: dict[str, Callable[[], object]]) -> None:
        """Look at each until it is true, in turns; fails with those that are not within LONGEST_SECONDS."""
        while waiting := [name for name in conditions if name not in self.seconds]:
            assert time.monotonic() - self.began < LONGEST_SECONDS, f"still not: {waiting}"
            for name in waiting:
                if conditions[name]():
                    self.seconds[name] = time.monotonic() - self.began
                    print(f"{name} after {self.seconds[name]:.1f} s", flush=True)
            time.sleep(0.2)


def resolves(platform: Platform) -> bool:
    """In a worker's pod."""
    done = platform.kubectl(
        "exec", "-n", NAMESPACE, "first-worker-0", "--", "sh", "-c", f'timeout 2 python3 -c "{LOOK_UP}" || echo no answer'
    )
    return "no answer" not in done


def submit(platform: Platform, name: str, gpus: int) -> None:
    platform.ebb("submit", "--name", name, "--gpus", str(gpus), "--gpu", "T4", "--",
                 *TRAINER, "--epochs", "1000", "--log-every", "1", "--min-step-seconds", "0.3")  # fmt: skip


def pods_of(platform: Platform, name: str) -> bool:
    return bool(platform.get("pods", "-n", NAMESPACE, "-l", f"{LABEL_JOB}={name}")["items"])


def longest_pause(steps: list[Object], since: float, until: float) -> float:
    """Seconds between two steps that follow each other, of those that ended in that time."""
    times: list[float] = [since, *(one["time"] for one in steps if since < one["time"] < until), until]
    return max(after - before for before, after in itertools.pairwise(times))


def test_jobs_train_on_without_the_manager_machine(stack: tuple[Platform, int]) -> None:
    platform, managers = stack
    assert len(platform.nodes(MANAGERS)) == managers
    submit(platform, "first", 2)
    submit(platform, "second", 1)
    outputs = [output_of(platform, name) for name in JOBS]
    platform.until("both train", lambda: all(steps_of(output)[5:] for output in outputs), seconds=LONGEST_SECONDS)
    platform.until("the first has two workers", lambda: steps_of(outputs[0])[-1]["world_size"] == 2)
    assert resolves(platform)
    generations = [steps_of(output)[-1]["generation"] for output in outputs]

    (store,) = ready(platform, "app.kubernetes.io/name=etcd")
    lost, killed_at = store["spec"]["nodeName"], time.time()
    outage = Outage()
    asyncio.run(lifecycle.kill(Box.load(platform.box_name), lost))
    submit(platform, LATER, 1)
    outage.watch({
        "names_resolve": lambda: resolves(platform),
        "controller": lambda: pods_of(platform, LATER),
        "gateway": lambda: [
            one for one in ready(platform, "app.kubernetes.io/name=ebb-gateway", NAMESPACE) if one["spec"]["nodeName"] != lost
        ],
        "etcd": lambda: [one for one in ready(platform, "app.kubernetes.io/name=etcd") if one["spec"]["nodeName"] != lost],
        "new_job_trains": lambda: steps_of(output_of(platform, LATER)),
    })  # fmt: skip
    until = time.time()
    pauses = [longest_pause(steps_of(output), killed_at, until) for output in outputs]
    steps = [sum(killed_at < one["time"] < until for one in steps_of(output)) for output in outputs]
    figures[managers] = {
        "boot_seconds": BOOT_SECONDS,
        **{f"lost_to_{name}_seconds": round(value, 1) for name, value in outage.seconds.items()},
        "steps_meanwhile": steps,
        "longest_pause_seconds": [round(one, 1) for one in pauses],
    }
    report({"managers": figures})
    assert [steps_of(output)[-1]["generation"] for output in outputs] == generations, "no worker noticed"
    assert all(number > 20 for number in steps)
    assert max(pauses) < BOOT_SECONDS / 2, "they trained while the machine was gone"
    if managers > 1:
        assert outage.seconds["controller"] < BOOT_SECONDS, "the other machine had it"
