"""list, status, wait, gpus, scale and delete, in words and in 80 columns; how errors end; what -o json promises."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from ebb.cli.app import app
from ebb.cli.pages import job_page
from ebb.cli.render import age, job_table, number, short
from ebb.cli.verbs.look import summary
from ebb.client.jobs.nodes import Nodes
from ebb.client.jobs.view import duration, view, worker_view
from ebb.client.jobs.watch import see
from ebb.kube import Object
from tests.cli.world import NS, FakeKube, elastic_job, platform_map, session, worker_pod

NOW = datetime(2026, 11, 21, 12, 3, 20, tzinfo=UTC)
PROGRESS = {
    "step": 120,
    "totalSteps": 560,
    "epoch": 2,
    "loss": 0.12345,
    "worldSize": 2,
    "generation": 3,
    "samplesPerSecond": 512.3,
    "tracker": "https://wandb.ai/team/digits/runs/5f3c",
}
HISTORY = [
    {"at": "2026-11-21T12:00:11.123Z", "what": "placed", "cause": "local-a"},
    {"at": "2026-11-21T12:01:07.5Z", "what": "reclaimed", "worker": 1, "node": "spot-t4-local-a-x1b2c", "cause": "ReclaimNotice"},
    {"at": "2026-11-21T12:02:09.5Z", "what": "failed", "worker": 0, "node": "spot-t4-local-a-9d8e7", "cause": "exit code 1"},
]
RUNNING = elastic_job(
    replicaStatuses={"Worker": {"active": 2}}, placement={"zone": "local-a", "capacityType": "spot", "gpuType": "T4"},
    progress=PROGRESS, reclaims=1, failures=1, history=HISTORY,
)  # fmt: skip


def invoke(*words: str, kube: FakeKube) -> Result:
    return CliRunner().invoke(app, list(words), obj=session(kube), env={"COLUMNS": "80", "TZ": "UTC"})


def drawn(renderable: Any, width: int = 80) -> str:
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


SCHEDULER = "0/1 nodes are available: 1 node(s) had untolerated taint(s) (see x). no new claims to deallocate"
STATES = {
    "waiting": elastic_job(
        state="Waiting", message=f"0 of at least 1 workers run: 2 workers wait for a machine in local-a ({SCHEDULER})."
    ),
    "running": RUNNING,
    "recovering": elastic_job(state="Restarting", message="0 of at least 1 workers run: lost workers are being replaced."),
    "stopped": elastic_job(state="Suspended", message="spec.suspend is true."),
    "finished": elastic_job(state="Succeeded", message="all workers finished."),
    "failed": elastic_job(state="Failed", message="worker 0 exited with 1."),
}


def test_what_a_job_costs_goes_on_between_two_readings() -> None:
    rates = {"usdPerHour": 3.6, "usdOnDemandPerHour": 12.0}
    cost = {"usdSpent": 1.0, "usdOnDemand": 4.0, "at": "2026-11-21T12:00:00Z", **rates}
    job = view(elastic_job(cost=cost), now=datetime(2026, 11, 21, 12, 10, tzinfo=UTC).timestamp())
    assert [job.usd_spent, job.usd_per_hour, job.usd_on_demand] == pytest.approx([1.6, 3.6, 6.0])
    assert "  cost      $1.60, $3.60 per hour now ($4.40 less than on-demand)" in drawn(job_page(job, [], NOW, 80))
    assert "cost" not in drawn(job_page(view(elastic_job(cost={"machineSeconds": 5.0})), [], NOW, 80))


def test_a_job_that_the_controller_stopped_says_why() -> None:
    job = elastic_job(state="Suspended", message="The budget is spent.", history=[
        {"at": "2026-11-21T12:01:00Z", "what": "stalled", "cause": "CannotStart"},
        {"at": "2026-11-21T12:02:00Z", "what": "held", "cause": "BudgetSpent"},
    ])  # fmt: skip
    page = drawn(job_page(view(job), [], NOW, 80))
    assert "because   The budget is spent." in page
    assert page.endswith("12:01:00  all workers start again: its workers cannot start\n12:02:00  stopped: its budget is spent")


def test_a_machine_that_is_held_says_until_when_and_how_to_get_in() -> None:
    machine = {"worker": 1, "uid": "uid-digits-worker-1", "until": "2026-11-21T12:32:00Z"}
    job = elastic_job(state="Suspended", message="It failed.", hold={"reason": "ProgramFailed", "machine": machine})
    page = drawn(job_page(view(job), [], NOW, 80))
    assert (
        "  held      worker 1's machine, for you until 12:32:00: ebb exec digits; release\n"
        "            it with ebb resume digits or ebb stop digits\n" in page
    )
    assert "held to 12:32:00" in drawn(job_table([view(job)], NOW, 80))
    workers = see(job, [worker_pod(0), worker_pod(1)], Nodes({})).workers
    assert [worker.state for worker in workers] == ["running", "held"]


@pytest.mark.parametrize(("state", "job"), STATES.items(), ids=STATES)
def test_states_in_plain_words(state: str, job: Object) -> None:
    assert view(job).state == state


def test_a_job_that_goes_is_deleting() -> None:
    job = elastic_job()
    job["metadata"]["deletionTimestamp"] = "2026-11-21T12:03:00Z"
    assert view(job).state == "deleting"


def test_a_job_of_a_bare_manifest_can_be_shown() -> None:
    job: Object = {
        "metadata": {"name": "old", "namespace": NS},
        "spec": {"rdzvEndpoint": "e:2379", "replicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": {"containers": []}}}}},
    }
    found = view(job)
    assert (found.state, found.workers, found.wanted_workers, found.min_workers, found.max_workers) == ("waiting", 0, 2, 2, 2)
    assert drawn(job_page(found, [], NOW, 80)) == ("old  waiting\n  workers   0 of 2\n  where     no zone yet\n  reclaims  none")


def test_list_in_80_columns() -> None:
    long = elastic_job("a-very-long-name-that-somebody-chose-for-an-experiment", state="Waiting")
    big = elastic_job(
        "big", replicas=16, progress={"step": 125000, "totalSteps": 1250000, "loss": 12.3456},
        placement={"zone": "europe-west4-a", "gpuType": "A100"}, reclaims=12,
    )  # fmt: skip
    table = drawn(job_table([view(job) for job in (RUNNING, long, big)], NOW, 80))
    assert table == (
        "NAME          STATE   WORKERS ZONE           GPU        STEP   LOSS RECLAIMS AGE\n"
        "digits        running     2/2 local-a        T4      120/560 0.1235        1  3m\n"
        "a-very-long-… waiting     0/2 -              T4            -      -        0  3m\n"
        "big           running    0/16 europe-west4-a A100 125k/1.25M  12.35       12  3m"
    )
    assert max(map(len, table.splitlines())) <= 80


def test_names_are_whole_in_a_pipe() -> None:
    name = "a-very-long-name-that-somebody-chose-for-an-experiment"
    result = CliRunner().invoke(app, ["list"], obj=session(FakeKube(platform_map(), elastic_job(name))), env={"COLUMNS": None})
    assert name in result.stdout


def test_status_page() -> None:
    workers = [
        worker_view(worker_pod(0, node="spot-t4-local-a-9d8e7")),
        worker_view(worker_pod(1, state="waiting")),
        worker_view(worker_pod(2, state="waiting", node="spot-t4-local-a-aaaaa")),
    ]
    assert drawn(job_page(view(RUNNING), workers, NOW, 80)) == (
        "digits  running  submitted 3m ago\n"
        "  workers   2 of 2, from 1 to 4; each 1 T4\n"
        "  where     spot, in local-a\n"
        "  progress  step 120 of 560 (21 %), epoch 2, loss 0.1235\n"
        "  speed     last 512.3 samples/s, world size 2, generation 3\n"
        "  tracker   https://wandb.ai/team/digits/runs/5f3c\n"
        "  reclaims  1\n"
        "  failures  1\n"
        "\n"
        "WORKER STATE                 AGE MACHINE\n"
        "0      running                3m spot-t4-local-a-9d8e7\n"
        "1      waiting for a machine  3m -\n"
        "2      starting               3m spot-t4-local-a-aaaaa\n"
        "\n"
        "12:00:11  goes to local-a\n"
        "12:01:07  worker 1 on spot-t4-local-a-x1b2c was lost: the cloud takes its\n"
        "          machine back\n"
        "12:02:09  the program failed in worker 0 on spot-t4-local-a-9d8e7: exit code 1"
    )


def test_status_names_the_fast_network() -> None:
    place = {"zone": "us-west-2b", "capacityType": "on-demand", "gpuType": "A100"}
    page = drawn(job_page(view(elastic_job(placement={**place, "network": "EFA"})), [], NOW, 80))
    assert "  where     on-demand, in us-west-2b\n  network   EFA\n" in page
    assert "network" not in drawn(job_page(view(elastic_job(placement=place)), [], NOW, 80))


def test_a_machine_that_was_left_by_plan_is_no_loss() -> None:
    entry = {"at": "2026-11-21T12:01:07Z", "what": "left", "worker": 1, "node": "m1", "cause": "MachineAge"}
    page = drawn(job_page(view(elastic_job(history=[entry])), [], NOW, 80))
    assert "  reclaims  none\n" in page
    assert page.endswith("12:01:07  worker 1 on m1 moves on: its machine is as old as it may get")


def test_status_says_what_a_job_waits_for_and_how_it_ended() -> None:
    assert drawn(job_page(view(STATES["waiting"]), [], NOW, 80)).splitlines()[:3] == [
        "digits  waiting  submitted 3m ago",
        "  because   0 of at least 1 workers run: 2 workers wait for a machine in",
        "            local-a.",
    ]
    ended = elastic_job(state="Succeeded", message="all workers finished.", completionTime="2026-11-21T12:02:22Z")
    assert drawn(job_page(view(ended), [], NOW, 80)).splitlines()[0] == "digits  finished  after 2 min 12 s, 58s ago"


WORKERS = {
    "waiting": (worker_pod(0, state="waiting"), "waiting for a machine"),
    "starting": (worker_pod(0, state="waiting", node="n"), "starting"),
    "running": (worker_pod(0, node="n"), "running"),
    "finished": (worker_pod(0, state="terminated", node="n"), "finished"),
    "failed": (worker_pod(0, state="terminated", node="n", code=1), "ended with exit code 1"),
}


@pytest.mark.parametrize(("pod", "state"), WORKERS.values(), ids=WORKERS)
def test_worker_states(pod: Object, state: str) -> None:
    assert worker_view(pod).state == state


def test_an_image_that_cannot_be_pulled_is_named() -> None:
    pod = worker_pod(0, state="waiting", node="n")
    pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] = "ImagePullBackOff"
    assert worker_view(pod).state == "cannot start: ImagePullBackOff"


def test_summary_is_one_line() -> None:
    assert summary(view(RUNNING)) == "digits is running, 2 of 2 workers, step 120/560, loss 0.1235, 1 reclaimed"
    assert summary(view(STATES["failed"])) == "digits is failed, worker 0 exited with 1."


@pytest.mark.parametrize(("count", "text"), [(0, "0"), (99999, "99999"), (100000, "100k"), (1250000, "1.25M"), (10**9, "1G")])
def test_short_counts(count: int, text: str) -> None:
    assert short(count) == text


@pytest.mark.parametrize(
    ("since", "text"),
    [("2026-11-21T12:03:10Z", "10s"), ("2026-11-21T12:00:00Z", "3m"), ("2026-11-19T12:00:00Z", "2d"), ("", "-")],
)
def test_ages(since: str, text: str) -> None:
    assert age(since, NOW) == text


@pytest.mark.parametrize(("length", "text"), [(41, "41 s"), (192, "3 min 12 s"), (7500, "2 h 5 min"), (59.7, "1 min 0 s")])
def test_durations(length: float, text: str) -> None:
    assert duration(length) == text


@pytest.mark.parametrize("amount", ["1.0", "1e0", None, "{{ gpus }}"])
def test_an_odd_job_file_of_somebody_else_breaks_no_list(amount: object) -> None:
    job = elastic_job()
    job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["resources"] = {
        "limits": {"nvidia.com/gpu": amount}
    }
    assert view(job).gpus_per_worker == (1 if amount in ("1.0", "1e0") else 0)


@pytest.mark.parametrize(("value", "text"), [(12345.6, "12346"), (0.00012345, "0.0001234"), (999.96, "1000"), (None, "-")])
def test_numbers_keep_their_digits(value: float | None, text: str) -> None:
    assert number(value) == text


def test_status_leads_to_the_jobs_dashboards_by_whole_addresses() -> None:
    facts = platform_map()
    told = json.loads(facts["data"]["platform.json"])
    place = "https://grafana.example.org/d/ebb-jobs"
    told["dashboards"] = {"Grafana": f"{place}?orgId=1&var-namespace={{namespace}}&var-ebb_job={{job}}&from=now-6h"}
    facts = {**facts, "data": {**facts["data"], "platform.json": json.dumps(told)}}
    address = f"{place}?orgId=1&var-namespace={NS}&var-ebb_job=digits&from=now-6h"
    kube = FakeKube(facts, elastic_job())
    assert f"  Grafana: {address}\n" in invoke("status", "digits", kube=kube).stdout
    assert json.loads(invoke("status", "digits", "-o", "json", kube=kube).stdout)["dashboards"] == {"Grafana": address}
