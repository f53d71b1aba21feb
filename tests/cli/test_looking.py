"""events, top, check and wait for several jobs, on a cluster; the whole status page of a job that has everything."""

import asyncio
import json
import sys
import time

import pytest
from typer.testing import CliRunner, Result

from ebb.api.clock import stamp
from ebb.api.contract import TAINT_RECLAIM
from ebb.api.platform import parse
from ebb.cli.app import app
from ebb.cli.pages import check_page, job_page, top_page
from ebb.client.diagnostics.symptoms import ok, problem, unseen, warning
from ebb.client.errors import BadRequest, Missing
from ebb.client.jobs.nodes import Nodes, machine_view
from ebb.client.jobs.top import top
from ebb.client.jobs.view import JobView, view
from ebb.client.jobs.watch import see, wait_for
from ebb.client.platform.connection import Ebb
from ebb.client.timeline.events import follow_events
from ebb.kube import Object
from tests.cli.test_look import NOW, PROGRESS, RUNNING, drawn
from tests.cli.world import NS, FakeKube, elastic_job, platform_map, session, worker_pod
from tests.client.diagnostics.test_check import Clinic
from tests.client.jobs.test_top import node
from tests.client.jobs.test_top import pod as seat
from tests.client.timeline.test_timeline import event

DAY = "2026-11-21T"


def invoke(*words: str, kube: FakeKube) -> Result:
    return CliRunner().invoke(app, list(words), obj=session(kube), env={"COLUMNS": "80", "TZ": "UTC"})


def place(kube: FakeKube) -> Ebb:
    return Ebb(kube=kube, platform=parse(platform_map()["data"]), namespace=NS)


def number_event(item: Object, number: int) -> Object:
    """An event as it is in a namespace."""
    return {**item, "metadata": {"name": f"e{number}", "namespace": NS, "uid": f"e{number}"}}


# --- status ---------------------------------------------------------------------------------------------------------------------


def test_the_page_of_a_job_with_everything() -> None:
    progress = {**PROGRESS, "usefulSeconds": 60.0, "at": f"{DAY}12:03:20Z"}
    cost = {
        "usdSpent": 1.25, "usdPerHour": 0.6, "usdOnDemand": 4.0, "usdOnDemandPerHour": 2.0, "machineSeconds": 160.0,
        "machines": 2, "usefulMachineSeconds": 120.0, "at": f"{DAY}12:03:20Z",
    }  # fmt: skip
    job = elastic_job(
        replicaStatuses={"Worker": {"active": 2}}, placement={"zone": "local-a", "capacityType": "spot", "gpuType": "T4"},
        progress=progress, cost=cost, reclaims=1, secondsLost=41.2, history=RUNNING["status"]["history"][:2],
    )  # fmt: skip
    pods = [worker_pod(0, node="m0"), worker_pod(1, node="m1")]
    for pod, started in zip(pods, ("12:00:30", "12:01:48"), strict=True):
        pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] = f"{DAY}{started}Z"
    nodes = Nodes({name: machine_view(node(name)) for name in ("m0", "m1")})
    seen = see(job, pods, nodes)
    # What `see` says of money goes on with the clock of this machine; the page is of one moment.
    page = drawn(job_page(view(job, NOW.timestamp()), seen.workers, NOW, 80, seen.reclaims))
    assert page == (
        "digits  running  submitted 3m ago\n"
        "  workers   2 of 2, from 1 to 4; each 1 T4\n"
        "  where     spot, in local-a\n"
        "  progress  step 120 of 560 (21 %), epoch 2, loss 0.1235\n"
        "  speed     last 512.3 samples/s, mean 2 steps/s, world size 2, generation 3\n"
        "  tracker   https://wandb.ai/team/digits/runs/5f3c\n"
        "  left      about 3 min 40 s\n"
        "  reclaims  1; back after 40 s; 41 s with too few workers to train\n"
        "  goodput   75 % of the paid machine time trained\n"
        "  cost      $1.25, $0.60 per hour now ($2.75 less than on-demand)\n"
        "\n"
        "WORKER STATE   AGE MACHINE TYPE        UP\n"
        "0      running  3m m0      g4dn.xlarge 3m\n"
        "1      running  3m m1      g4dn.xlarge 3m\n"
        "\n"
        "12:00:11  goes to local-a\n"
        "12:01:07  worker 1 reclaimed in local-a, back in zone-a after 40 s: the cloud\n"
        "          takes its machine back"
    )


def test_a_long_machine_name_gives_way() -> None:
    pods = [worker_pod(0, node="ip-10-0-123-123.us-west-2.compute.internal")]
    machine = node("ip-10-0-123-123.us-west-2.compute.internal")
    machine["metadata"]["labels"]["node.kubernetes.io/instance-type"] = "g4dn.12xlarge"
    nodes = Nodes({machine["metadata"]["name"]: machine_view(machine)})
    seen = see(elastic_job(), pods, nodes)
    lines = drawn(job_page(seen.job, seen.workers, NOW, 60, ())).splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[-1] == "0      running  3m ip-10-0-123-123.us-west… g4dn.12xlarge 3m"


def test_a_worker_that_was_lost_twice_is_told_by_events() -> None:
    again = {"at": f"{DAY}12:02:00Z", "what": "reclaimed", "worker": 1, "node": "m2", "cause": "NodeGone"}
    job = elastic_job(reclaims=2, history=[RUNNING["status"]["history"][1], again])
    events = [number_event(event("Started", at="12:01:40", pod=1), 1), number_event(event("Pulled", at="12:01:50", pod=1), 2)]
    kube = FakeKube(platform_map(), job, *events)
    found = json.loads(invoke("status", "digits", "-o", "json", kube=kube).stdout)
    assert [loss["seconds"] for loss in found["reclaims"]] == [32.5, None]


# --- events ---------------------------------------------------------------------------------------------------------------------

STORY = [
    number_event(event("FailedScheduling", "0/3 nodes are available: untolerated taint.", at="12:00:02", pod=0, count=3), 1),
    number_event(event("Scheduled", "Successfully assigned elastic-job/digits-worker-0 to m0", at="12:00:40", pod=0), 2),
    number_event(event("Started", "", at="12:00:51", pod=0), 3),
    number_event(event("Failed", "Error: ImagePullBackOff", at="12:00:52", pod=1, type="Warning"), 4),
]


def test_events_are_a_story() -> None:
    result = invoke("events", "digits", kube=FakeKube(platform_map(), RUNNING, worker_pod(0), *STORY))
    assert (result.exit_code, result.stderr) == (0, "")
    clock = f"{DAY[:-1]} "
    assert result.stdout == (
        f"{clock}12:00:02  worker 0 waits for a machine (x3)\n"
        f"{clock}12:00:11  goes to local-a\n"
        f"{clock}12:00:40  worker 0 goes to machine m0\n"
        f"{clock}12:00:51  worker 0 starts\n"
        f"{clock}12:00:52  worker 1: Error: ImagePullBackOff\n"
        f"{clock}12:01:07  worker 1 reclaimed in local-a: the cloud takes its machine\n"
        "                     back\n"
        f"{clock}12:02:09  the program failed in worker 0 on spot-t4-local-a-9d8e7:\n"
        "                     exit code 1\n"
    )


def test_events_as_json_and_of_a_job_without_any() -> None:
    kube = FakeKube(platform_map(), elastic_job(), STORY[2])
    (entry,) = json.loads(invoke("events", "digits", "-o", "json", kube=kube).stdout)["events"]
    assert entry == {
        "at": f"{DAY}12:00:51Z", "last": f"{DAY}12:00:51Z", "text": "worker 0 starts", "count": 1, "workers": [0],
        "reason": "Started", "warning": False,
    }  # fmt: skip
    result = invoke("events", "digits", kube=FakeKube(platform_map(), elastic_job()))
    assert (result.stdout, result.stderr) == ("", "Nothing is known about digits yet. Kubernetes forgets events after an hour.\n")


async def test_followed_events_come_as_they_happen_and_again_when_they_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["ebb.client.timeline.events"]  # the package has a function of that name
    monkeypatch.setattr(module, "AFTER_SECONDS", 0.0)
    monkeypatch.setattr(module, "TICK_SECONDS", 0.01)
    kube = FakeKube(platform_map(), elastic_job(), worker_pod(0), STORY[0])
    lines: list[str] = []

    async def follow() -> None:
        async for entry in follow_events(place(kube), "digits"):
            lines.append(entry.text)

    async def until(count: int) -> None:
        async with asyncio.timeout(10):
            while len(lines) < count:  # noqa: ASYNC110 - the lines come from a stream that is on trial
                await asyncio.sleep(0.005)

    following = asyncio.create_task(follow())
    await until(1)
    kube.put(number_event(event("FailedScheduling", "0/3 nodes", at="12:00:05", pod=1), 5))
    await until(2)
    kube.put({**STORY[0], "count": 4})  # hardly news
    kube.put(elastic_job(history=[RUNNING["status"]["history"][1]]))
    await until(3)
    back = worker_pod(1, node="m9")
    back["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] = f"{DAY}12:01:48Z"
    kube.put(back)
    await until(4)
    kube.put(elastic_job(state="Succeeded"))
    await asyncio.wait_for(following, 10)
    assert lines == [
        "worker 0 waits for a machine",
        "workers 0 and 1 wait for a machine",
        "worker 1 reclaimed: the cloud takes its machine back",
        "worker 1 reclaimed, back after 40 s: the cloud takes its machine back",
    ]


async def test_workers_lost_at_one_moment_are_each_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["ebb.client.timeline.events"]
    monkeypatch.setattr(module, "AFTER_SECONDS", 0.0)
    monkeypatch.setattr(module, "TICK_SECONDS", 0.01)
    lost = [
        {"at": f"{DAY}12:01:07.5Z", "what": "reclaimed", "worker": n, "node": f"m{n}", "cause": "ReclaimNotice"} for n in (1, 2)
    ]
    kube, lines = FakeKube(platform_map(), elastic_job(history=lost)), asyncio.Queue[str]()

    async def follow() -> None:
        async for entry in follow_events(place(kube), "digits"):
            lines.put_nowait(entry.text)

    following = asyncio.create_task(follow())
    first = {await lines.get(), await lines.get()}
    for turn in range(3):  # each change is a look of its own
        kube.put(elastic_job(history=lost, reclaims=2 + turn))
        await asyncio.sleep(0.02)
    kube.put(elastic_job(state="Succeeded", history=lost))
    await asyncio.wait_for(following, 10)
    assert first == {f"worker {n} reclaimed: the cloud takes its machine back" for n in (1, 2)}
    assert lines.empty()


async def test_events_of_a_job_that_is_deleted_end_in_a_sentence() -> None:
    kube = FakeKube(platform_map(), elastic_job())

    async def follow() -> None:
        async for _ in follow_events(place(kube), "digits"):
            pass

    following = asyncio.create_task(follow())
    await asyncio.sleep(0.05)
    kube.remove(elastic_job())
    with pytest.raises(Missing, match="digits was deleted"):
        await asyncio.wait_for(following, 10)


# --- top ------------------------------------------------------------------------------------------------------------------------


def test_top_in_80_columns() -> None:
    busy = elastic_job(
        "a-very-long-name-that-somebody-chose", progress={**PROGRESS, "usefulSeconds": 48.0, "at": f"{DAY}12:03:00Z"},
        replicaStatuses={"Worker": {"active": 2}}, placement={"zone": "local-a"},
        cost={"usdSpent": 1, "usdOnDemand": 2, "usdPerHour": 0.32},
    )  # fmt: skip
    machines = [machine_view(node(name, taints=taints)) for name, taints in (("m0", ()), ("m1", (TAINT_RECLAIM,)))]
    found = top(
        [busy, elastic_job("next", state="Waiting")], [seat(0, "m0", job="a-very-long-name-that-somebody-chose")], machines
    )
    assert drawn(top_page(found, NOW, 80)) == (
        "1 of 2 jobs run, 1 of 2 GPUs busy, 512.3 samples/s, $0.32 per hour\n"
        "\n"
        "NAME                          STATE   WORKERS GPUS ZONE    STEP STEP/S SAMPLES/S\n"
        "a-very-long-name-that-somebo… running     2/2    2 local-a  120    2.5     512.3\n"
        "next                          waiting     0/2    0 -          -      -         -\n"
        "\n"
        "MACHINE TYPE        ZONE   CAPACITY BUSY STATE   AGE JOBS\n"
        "m0      g4dn.xlarge zone-a spot      1/1 ready    3m a-very-long-name-that-some…\n"
        "m1      g4dn.xlarge zone-a spot      0/1 leaving  3m -"
    )


USED = {"ranks": [0], "utilization": 94, "memoryUsedBytes": 12 * 2**30, "memoryTotalBytes": 15 * 2**30}
GPUS = [{"worker": 0, "gpu": 0, **USED}, {"worker": 1, "gpu": 0, "ranks": [1], "utilization": 3, "idleSeconds": 840}]


def test_top_says_how_busy_gpus_are_where_that_is_known() -> None:
    jobs = [elastic_job("digits", gpus=GPUS), elastic_job("other"), elastic_job("next", state="Waiting")]
    found = top(jobs, [], [])
    assert [(job.name, job.utilization, job.gpus_idle) for job in found.jobs] == [
        ("digits", 48.5, 1), ("other", None, 0), ("next", None, 0),
    ]  # fmt: skip
    rows = [line.split()[-1] for line in drawn(top_page(found, NOW, 80)).splitlines()[2:]]
    assert rows == ["%", "48", "-", "-"]


def test_status_shows_each_gpu_and_which_is_hardly_used() -> None:
    page = drawn(job_page(view(elastic_job(gpus=GPUS)), [], NOW, 80))
    assert "  GPUs      48 % busy on average, 1 hardly used\n" in page
    assert page.endswith(
        "RANK WORKER GPU BUSY MEMORY\n"
        "1    1      0    3 % -              hardly used for 14 min 0 s\n"
        "0    0      0   94 % 12.0 of 15 GiB"
    )
    ended = drawn(job_page(view(elastic_job(state="Succeeded", gpus=GPUS)), [], NOW, 80))
    assert ("  last GPUs 48 % busy on average" in ended, "RANK" in ended) == (True, False)


def test_top_looks_once_into_a_pipe() -> None:
    kube = FakeKube(platform_map(), RUNNING, seat(0, "m0"), node("m0"))
    text = invoke("top", kube=kube).stdout
    assert text.startswith("1 of 1 jobs run, 1 of 1 GPUs busy, 512.3 samples/s")
    found = json.loads(invoke("top", "-o", "json", kube=kube).stdout)
    assert (found["gpus"], found["gpus_busy"], found["machines"][0]["jobs"]) == (1, 1, ["digits"])


# --- check ----------------------------------------------------------------------------------------------------------------------


def test_check_says_what_to_do() -> None:
    findings = [
        ok("kubeconfig", "/home/ada/.kube/config"),
        unseen("controller", "your rights do not show whether one leads"),
        warning("quotas", "pods: 4900 of 5k", "Delete jobs that are over, or ask the platform's owner for more."),
        problem("gateway", "it is not ready", "Try again in a minute."),
    ]
    assert drawn(check_page(findings, 80)) == (
        "ok       kubeconfig   /home/ada/.kube/config\n"
        "unseen   controller   your rights do not show whether one leads\n"
        "warning  quotas       pods: 4900 of 5k\n"
        "                      -> Delete jobs that are over, or ask the platform's owner\n"
        "                         for more.\n"
        "problem  gateway      it is not ready\n"
        "                      -> Try again in a minute.\n"
        "\n"
        "1 problem, 1 warning"
    )
    assert drawn(check_page(findings[:2], 80)).endswith("\n\nEverything that can be seen is in order.")


def test_check_ends_as_it_found() -> None:
    clinic = Clinic()
    clinic.lease["spec"]["renewTime"] = stamp(time.time())
    good = invoke("check", kube=clinic)
    assert (good.exit_code, good.stdout.splitlines()[0].split()[:2]) == (0, ["ok", "kubeconfig"])
    bad = invoke("check", "-o", "json", kube=FakeKube())
    assert bad.exit_code == 1
    assert "problem" in {finding["level"] for finding in json.loads(bad.stdout)["findings"]}


# --- wait -----------------------------------------------------------------------------------------------------------------------


def test_wait_for_several() -> None:
    kube = FakeKube(platform_map(), elastic_job("a", state="Succeeded"), elastic_job("b", state="Failed", message="exit code 1."))
    result = invoke("wait", "a", "b", "-o", "json", kube=kube)
    found = json.loads(result.stdout)
    assert (result.exit_code, [job["state"] for job in found["jobs"]], found["job"]["name"]) == (5, ["finished", "failed"], "a")
    assert invoke("wait", "a", "a", kube=kube).exit_code == 0


def test_wait_until_jobs_run() -> None:
    jobs = [platform_map(), elastic_job("a"), elastic_job("b", state="Waiting")]
    assert invoke("wait", "a", "--for", "running", kube=FakeKube(*jobs)).exit_code == 0
    late = invoke("wait", "a", "b", "--for", "running", "--timeout", "0.05", kube=FakeKube(*jobs))
    assert (late.exit_code, late.stderr.splitlines()[-1]) == (6, "ebb: b does not run after 0.05 s; it goes on.")
    late = invoke("wait", "a", "b", "--timeout", "0.05", kube=FakeKube(*jobs))
    assert late.stderr.splitlines()[-1] == "ebb: a, b are not over after 0.05 s; they go on."


async def test_waiting_sees_changes_and_says_them() -> None:
    kube = FakeKube(platform_map(), elastic_job("a", state="Waiting"), elastic_job("b"))
    said: list[tuple[str, str]] = []

    def say(job: JobView) -> None:
        said.append((job.name, job.state))

    waiting = asyncio.create_task(wait_for(place(kube), ["a", "b"], "running", say=say))
    await asyncio.sleep(0.05)
    kube.put(elastic_job("a"))
    done = await asyncio.wait_for(waiting, 5)
    assert [job.name for job in done] == ["a", "b"]
    assert said == [("a", "waiting"), ("b", "running"), ("a", "running")]


async def test_waiting_for_a_job_that_is_deleted() -> None:
    kube = FakeKube(platform_map(), elastic_job("a"))
    waiting = asyncio.create_task(wait_for(place(kube), ["a"]))
    await asyncio.sleep(0.05)
    kube.remove(elastic_job("a"))
    with pytest.raises(Missing, match="a was deleted"):
        await asyncio.wait_for(waiting, 5)
    with pytest.raises(BadRequest, match="for 'lunch' is not something to wait for: use finished or running"):
        await wait_for(place(kube), ["a"], "lunch")
