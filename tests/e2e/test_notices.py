"""Notices of three clouds on a devcluster: the agents of its spot machines ask the address that they ask in a cloud.

A metadata service answers at 169.254.169.254 in the devcluster's network, in the cloud's own format, each machine by its address.
The agents are the DaemonSet that a cloud's stack has, with its account and its policy. `make prove-notice` shows the seconds.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import pytest
import yaml

from devcluster.machines.lifecycle import node_ip
from devcluster.settings import CHECKOUT, Box
from ebb.api import reclaim
from ebb.api.contract import EXIT_RECLAIMED
from tests.e2e.conftest import BOX, Object, Platform
from tests.e2e.link_local import served
from tests.e2e.test_platform import NAMESPACE, job
from tests.figures import report, wanted_file
from tests.metadata.clouds import AwsMetadata, AzureMetadata, Fake, GcpMetadata, Region, serve

pytestmark = pytest.mark.e2e
ADDRESS, AGENT, NAME = "169.254.169.254", "ebb-notices", "noticed"
NOBODY = 1000  # the images' user, and the owner of the shared volumes
HANG_SECONDS = 20.0
WHOLE = wanted_file() is not None  # 80 s for each cloud with its silence; tests/notices has the formats of all three
# A worker that does nothing but write down when SIGTERM comes: nothing between the kubelet and the clock.
WORKER = f"""
import os, pathlib, signal, sys, time
told = pathlib.Path(os.environ["EBB_OUTPUT_DIR"], os.environ["EBB_POD_UID"])
told.parent.mkdir(parents=True, exist_ok=True)
def leave(*_):
    told.write_text(repr(time.time()))
    os._exit({EXIT_RECLAIMED})
signal.signal(signal.SIGTERM, leave)
told.touch()  # from here on it hears
while True:
    time.sleep(60)
"""


@dataclass(frozen=True, kw_only=True)
class Story:
    """A cloud: its service, how it announces a reclaim and withdraws it, and the seconds that Ebb may take.

    `notice_seconds`: from the announcement to SIGTERM: the agent's pause between two questions (AWS says five seconds, the others
    one), and what the API server, the controller and the kubelet need on a busy computer. After silence: its longest pause
    and the time-out of one question more (of a question to Google that waits for a change, 12 s).
    """

    service: type[Fake]
    announce: Callable[[Any], None]
    withdraw: Callable[[Any], None]
    notice_seconds: float
    silence_seconds: float


STORIES = {
    "aws": Story(
        service=AwsMetadata,
        announce=lambda cloud: vars(cloud).update(action={"action": "terminate", "time": cloud.stamp(120)}),
        withdraw=lambda cloud: vars(cloud).update(action=None),
        notice_seconds=15,
        silence_seconds=15 + 15 + 2,
    ),
    "gcp": Story(
        service=GcpMetadata,
        announce=lambda cloud: cloud.change(preempted="TRUE"),
        withdraw=lambda cloud: cloud.change(preempted="FALSE"),
        notice_seconds=10,
        silence_seconds=10 + 5 + 12,
    ),
    "azure": Story(
        service=AzureMetadata,
        announce=lambda cloud: vars(cloud).update(events=[cloud.event("Preempt", 30)]),
        withdraw=lambda cloud: vars(cloud).update(events=[]),
        notice_seconds=10,
        silence_seconds=10 + 5 + 5,
    ),
}
CLOUDS = tuple(STORIES) if WHOLE else ("aws",)
seconds: dict[str, dict[str, float]] = {}


@contextmanager
def metadata(box: Box, story: Story) -> Iterator[Region]:
    """The cloud's service at its own address, which the devcluster's router has."""
    with served(box, ADDRESS) as listening, serve(Region(story.service), listening) as region:
        yield region


@contextmanager
def agents(platform: Platform, cloud: str) -> Iterator[None]:
    """The DaemonSet of a cloud's stack. A devcluster's firmware is its host's, so the agents are told which cloud they are in."""
    controller = platform.get("deployment", "ebb-controller", "-n", "ebb-system")
    documents = list(yaml.safe_load_all((CHECKOUT / "workloads" / "manifests" / "notices.yaml").read_text()))
    [container] = documents[-1]["spec"]["template"]["spec"]["containers"]
    container["image"] = controller["spec"]["template"]["spec"]["containers"][0]["image"]
    container["command"] += [f"--cloud={cloud}"]
    path = platform.folder / "notices.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    platform.kubectl("apply", "-f", str(path))
    try:
        yield
    finally:
        platform.kubectl("delete", "-f", str(path))


@contextmanager
def workers(platform: Platform) -> Iterator[None]:
    """A job of two workers, each with a machine of its own."""
    image = json.loads(platform.get("configmap", "ebb-platform", "-n", "ebb-system")["data"]["platform.json"])["trainerImage"]
    container = {
        "name": "elasticjob-worker", "image": image, "command": ["python3", "-c", WORKER],
        "resources": {"limits": {"nvidia.com/gpu": 1}, "requests": {"cpu": "100m", "memory": "64Mi"}},
    }  # fmt: skip
    template = {"spec": {"securityContext": {"runAsUser": NOBODY, "runAsNonRoot": True}, "containers": [container]}}
    spec: Object = {"rdzvEndpoint": "etcd-service:2379", "minReplicas": 1, "maxReplicas": 2}
    spec |= {"placement": {"gpuType": "T4"}, "replicaSpecs": {"Worker": {"replicas": 2, "template": template}}}
    body: Object = {"apiVersion": "elastic.pytorch.org/v1alpha1", "kind": "ElasticJob"}
    body |= {"metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec}
    path = platform.folder / "noticed.yaml"
    path.write_text(yaml.safe_dump(body))
    platform.kubectl("apply", "-f", str(path))
    try:
        yield
    finally:
        platform.kubectl("delete", "-f", str(path))
        platform.until("all spot machines leave", lambda: not platform.nodes())


@dataclass(frozen=True, kw_only=True)
class Victim:
    """A worker, its machine, and what the machine is told."""

    pod: str  # UID
    node: str
    cloud: Fake

    @property
    def told_at(self) -> float | None:
        """When it had SIGTERM, as unix seconds."""
        return float(words_of(self.pod) or 0) or None


def words_of(pod: str) -> str | None:
    """What the worker has written; None: it does not hear yet."""
    found = list((Box.load(BOX).volumes / "shared" / "output" / NAMESPACE).glob(f"{NAME}-*/{pod}"))
    return found[0].read_text() if found else None


def listening(platform: Platform, region: Region) -> Victim:
    """The second worker, once both run, on machines whose agents have asked."""
    box = Box.load(BOX)

    def found() -> Victim | None:
        pods = platform.get("pods", "-n", NAMESPACE, "-l", f"job-name={NAME}")["items"]
        alive = [one for one in pods if one["status"]["phase"] == "Running" and "deletionTimestamp" not in one["metadata"]]
        clouds = [region.of(node_ip(box, one["spec"]["nodeName"])) for one in alive]
        hear = all(words_of(one["metadata"]["uid"]) is not None for one in alive)
        if len(alive) < 2 or not hear or not all(len(cloud.asked) > 2 for cloud in clouds):
            return None
        last = max(range(2), key=lambda at: alive[at]["metadata"]["name"])
        return Victim(pod=alive[last]["metadata"]["uid"], node=alive[last]["spec"]["nodeName"], cloud=clouds[last])

    return cast(Victim, platform.until("two workers run, and their machines listen", found))


def marked(platform: Platform, node: str) -> bool | None:
    """None: the machine is gone."""
    found = next((one for one in platform.nodes() if one["metadata"]["name"] == node), None)
    return None if found is None else reclaim.is_tainted(found) or not reclaim.is_marked(found, reclaim.NOTHING)


def sigterm_after(platform: Platform, victim: Victim, story: Story) -> float:
    """Announce the reclaim of its machine; returns the seconds until the worker has SIGTERM."""
    began = time.time()
    story.announce(victim.cloud)
    told_at: float = platform.until(f"SIGTERM in the worker on {victim.node}", lambda: victim.told_at)
    return round(told_at - began, 2)


def notice_after_silence(platform: Platform, victim: Victim, story: Story) -> float:
    """The service of its machine hangs, announces, and hangs again; returns the seconds until the worker has SIGTERM."""
    victim.cloud.hangs = True
    time.sleep(HANG_SECONDS)
    assert marked(platform, victim.node) is False
    assert victim.told_at is None, "nothing is known, so nobody leaves"
    victim.cloud.hangs = False
    after_silence = sigterm_after(platform, victim, story)
    victim.cloud.hangs = True
    time.sleep(HANG_SECONDS / 2)
    assert marked(platform, victim.node) in (True, None), "what was announced holds while the service is silent"
    return after_silence


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_notice_reaches_the_worker(platform: Platform, cloud: str) -> None:
    """Announced; withdrawn; with figures also after a silence in which nothing was known (else tests/notices/test_agent.py)."""
    story, box, after_silence = STORIES[cloud], Box.load(BOX), 0.0
    with workers(platform), metadata(box, story) as region, agents(platform, cloud):
        victim = listening(platform, region)
        notice = sigterm_after(platform, victim, story)
        assert marked(platform, victim.node)
        began = time.time()
        story.withdraw(victim.cloud)
        platform.until("the marks are gone", lambda: not marked(platform, victim.node))
        withdrawn = round(time.time() - began, 2)
        assert marked(platform, victim.node) is False, "the machine stays, and takes workers again"

        if WHOLE:
            after_silence = notice_after_silence(platform, listening(platform, region), story)
        platform.until("both workers run", lambda: job(platform, NAME)["status"].get("ready") == "2/2")
        assert not job(platform, NAME)["status"].get("failures")
    seconds[cloud] = {
        "notice_to_sigterm": notice,
        "withdrawn_to_unmarked": withdrawn,
        "notice_after_silence_to_sigterm": after_silence,
    }
    report({"seconds": seconds})
    assert notice <= story.notice_seconds
    assert withdrawn <= story.notice_seconds
    assert after_silence <= story.silence_seconds
