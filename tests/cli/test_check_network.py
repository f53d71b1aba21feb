"""`ebb check network`: the job that it sends, the figures that it reads, what it says about them, and that nothing stays."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ebb.api.contract import NETWORK_LINE
from ebb.cli.app import app
from ebb.client.diagnostics import network
from ebb.client.diagnostics.network import NetworkFigure, NetworkMachine, NetworkOptions, NetworkReading, judge
from ebb.client.logs import follow
from ebb.client.platform.connection import Ebb
from ebb.kube import Object
from tests.cli.world import NS, FakeKube, node_group, platform_map, session, worker_pod
from tests.pod_security import violations

EFA = {
    "name": "EFA", "resources": {"vpc.amazonaws.com/efa": "4"}, "environment": {}, "claim": "", "selector": {},
}  # fmt: skip
BIG = node_group("p4d", "local-a", gpuType="A100", gpusPerNode=8, pricePerHourOnDemand=32.8, network=EFA, cpu=96, memoryGiB=1152)
GIVEN = {"name": "rdmap16s27", "kind": "EFA", "given": True}


def said(kind: str, **facts: Any) -> str:
    return f"2026-11-21T12:01:00.{0:09d}Z {NETWORK_LINE} {json.dumps({'kind': kind, **facts})}"


def machine_facts(worker: int, name: str, *adapters: Object) -> Object:
    selected = {"network": name, "provider": "efa" if name == "EFA" else "", "adapters": len(adapters), "gpu_direct": False}
    return {"worker": worker, "machine": f"m{worker}", "adapters": list(adapters), "selected": selected}


def figure(operation: str, size: int, seconds: float, bus: float, *, wrong: int = 0) -> str:
    rates = {"algorithm": size / seconds / 1e9, "bus": bus}
    return said("figure", operation=operation, bytes=size, seconds=seconds, times=5, wrong=wrong, **rates)


def log_of(*machines: Object, adapters: str = "all", wrong: int = 0) -> list[str]:
    return [
        "2026-11-21T12:00:59.000000000Z [launcher 12:00:59] meeting the other machines of the job",
        said("start", ranks=16, device="cuda", gpu="NVIDIA A100-SXM4-40GB", adapters=adapters, machines=machines),
        figure("all-reduce", 8, 630e-6, 0.0),
        figure("all-reduce", 2**20, 1599.2e-6, 1.23),
        figure("all-reduce", 2**30, 47904e-6, 42.03, wrong=wrong),
        figure("all-gather", 8, 400e-6, 0.0),
        figure("all-gather", 2**20, 900e-6, 1.09),
        said("skipped", operation="all-gather", bytes=2**30, reason="it would take 34 s"),
        figure("send-receive", 2**20, 200e-6, 5.24),
        said("end"),
    ]


class Cluster(FakeKube):
    """A controller and its machines in one: a job that comes runs at once, and its first worker has written `log`."""

    def __init__(self, log: list[str], *, ends: str = "Succeeded") -> None:
        super().__init__(platform_map(BIG))
        self.logged, self.ends = log, ends
        self.jobs: list[Object] = []

    def _create(self, path: str, body: Object) -> Object:
        made = super()._create(path, body)
        if made["kind"] != "ElasticJob":
            return made
        self.jobs.append(made)
        name = made["metadata"]["name"]
        pods = [worker_pod(index, job=name, state="terminated" if self.ends else "running") for index in range(2)]
        for pod in pods:
            self.put(pod)
        self.write(pods[0], *self.logged)
        if self.ends:
            for pod in pods:
                self.close_log(pod)
            condition = {"type": self.ends, "status": "True", "reason": f"ElasticJob{self.ends}", "message": "exit code 1"}
            self.put({**made, "status": {"conditions": [condition]}})
        return made


def invoke(*words: str, kube: FakeKube) -> Result:
    return CliRunner().invoke(app, ["check", "network", *words], obj=session(kube), env={"COLUMNS": "80", "EBB_USER": "ada"})


def test_the_table_stands_beside_the_articles_and_the_job_is_gone() -> None:
    cluster = Cluster(log_of(machine_facts(0, "EFA", *[GIVEN] * 4), machine_facts(1, "EFA", *[GIVEN] * 4)))
    result = invoke("--gpus", "16", "--gpu", "A100", kube=cluster)
    assert (result.exit_code, result.exception) == (0, None), result.output
    name = cluster.jobs[0]["metadata"]["name"]
    assert result.stderr.splitlines() == [
        f"{name}: 2 machines with EFA (g4dn.xlarge, spot) for about 5 min, about $1.64; it ends after 30 min at the latest, "
        "$9.84.",
        "starting (0 of 52 figures are measured)",
        "all-reduce (1 of 52 figures are measured)",
        "all-gather (4 of 52 figures are measured)",
        "send-receive (7 of 52 figures are measured)",
    ]
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        "16 x NVIDIA A100-SXM4-40GB on 2 machines; times, and bandwidths in GB/s as",
        "nccl-tests reckons them",
        "SIZE ALL-REDUCE   ALG   BUS ALL-GATHER  ALG  BUS SEND-RECV ALG=BUS",
        "1 MB     1.6 ms  0.66  1.23     900 us 1.17 1.09    200 us    5.24",
        "1 GB    47.9 ms 22.41 42.03          -    -    -         -       -",
        "left out  all-gather of 1 GB: it would take 34 s",
        "8 bytes   all-reduce 630 us, all-gather 400 us",
        "",
        "ALL-REDUCE, 8 B TO 1 GB, BUS  MOST AVERAGE",
        "here, all adapters           42.03   14.42",
        "article, 4 EFA               42.04    8.24",
        "article, 1 EFA                5.89    3.02",
        "article, no EFA               2.38    0.97",
        "article: 16 A100 on two p4d.24xlarge, by nccl-tests",
        "",
        "ok       network      EFA",
    ]
    assert [path for method, path in cluster.sent if method == "DELETE"] == [
        f"/apis/elastic.pytorch.org/v1alpha1/namespaces/{NS}/elasticjobs/{name}"
    ]


def test_without_adapters_the_table_does_not_speak_of_all_of_them() -> None:
    cluster = Cluster(log_of(machine_facts(0, "sockets"), machine_facts(1, "sockets")))
    result = invoke("--gpus", "16", "--gpu", "A100", kube=cluster)
    assert "here, no adapter             42.03   14.42" in result.stdout


def test_the_job_is_a_researchers_own_with_limits() -> None:
    cluster = Cluster(log_of(machine_facts(0, "EFA", GIVEN)))
    invoke("--gpus", "16", "--gpu", "A100", "--adapters", "1", "-o", "json", kube=cluster)
    spec = cluster.jobs[0]["spec"]
    worker = spec["replicaSpecs"]["Worker"]
    assert (spec["minReplicas"], spec["maxReplicas"], worker["replicas"]) == (2, 2, 2)
    assert (spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"], spec["backoffLimit"]) == (1800, 600, 0)
    assert worker["template"]["spec"]["containers"][0]["args"] == ["-m", "ebb.elastic.netcheck", "--adapters", "1"]
    assert violations(worker["template"]["spec"]) == []


def test_sockets_where_efa_was_there_fail_with_the_fix() -> None:
    cluster = Cluster(log_of(machine_facts(0, "sockets", *[GIVEN] * 4), machine_facts(1, "sockets", *[GIVEN] * 4)))
    result = invoke("--gpus", "16", "--gpu", "A100", kube=cluster)
    assert result.exit_code == 1
    assert " ".join(" ".join(result.stdout.splitlines()[-5:]).split()) == (
        "problem network EFA was there (4 adapters on worker 0), and sockets were used -> NCCL lacks its plugin for it: use the "
        "platform's image, which has it, or install aws-ofi-nccl into yours."
    )
    assert len([path for method, path in cluster.sent if method == "DELETE"]) == 1


def test_json_has_all_of_it() -> None:
    result = invoke("--gpus", "16", "--gpu", "A100", "-o", "json", kube=Cluster(log_of(machine_facts(0, "EFA", GIVEN))))
    found = json.loads(result.stdout)["network"]
    assert (found["ranks"], found["most_gb_s"], len(found["figures"]), found["finding"]["level"]) == (16, 42.03, 6, "ok")
    assert found["article"][0] == {"adapters": 4, "provider": "efa", "most_gb_s": 42.04, "average_gb_s": 8.24}


def test_a_check_without_a_result_says_its_last_lines_and_leaves_no_job() -> None:
    lost = "2026-11-21T12:01:00.000000000Z ValueError: one rank has no network to measure: use at least 2"
    cluster = Cluster([lost], ends="Failed")
    result = invoke("--gpus", "16", "--gpu", "A100", kube=cluster)
    assert result.exit_code == 1
    assert "the check has no result: its job network-check-" in result.stderr
    assert "w0 | ValueError: one rank has no network to measure: use at least 2" in result.stderr
    assert len([path for method, path in cluster.sent if method == "DELETE"]) == 1


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "RECHECK_SECONDS", 0.01)


def test_what_cannot_be_measured_is_refused_before_anything_is_sent() -> None:
    cluster = Cluster([])
    result = invoke("--gpus", "1", kube=cluster)
    assert (result.exit_code, cluster.jobs) == (2, [])
    assert "gpus 1 is too few: a network is between at least 2. Use --gpus 2 or more." in result.stderr


async def test_ctrl_c_deletes_the_job() -> None:
    """asyncio.run turns Ctrl-C into the cancellation of what runs."""
    cluster = Cluster(log_of(machine_facts(0, "EFA", GIVEN))[:3], ends="")
    seen = asyncio.Event()
    async with session(cluster).open() as ebb:
        assert isinstance(ebb, Ebb)
        prepared = network.prepare_check(ebb, NetworkOptions(gpus=16, gpu="A100"))
        check = asyncio.create_task(
            network.check_network(ebb, prepared, note=lambda _: None, show=lambda done, *_: seen.set() if done else None)
        )
        await asyncio.wait_for(seen.wait(), 10)
        check.cancel()
        with pytest.raises(asyncio.CancelledError):
            await check
    name = prepared.body["metadata"]["name"]
    assert [path.rpartition("/")[2] for method, path in cluster.sent if method == "DELETE"] == [name]


STAGES = {  # status and reason of condition Running
    "waiting for machines": ("False", "WaitingForMachines"),
    "its machines are booting": ("False", "MachinesBooting"),
    "starting on its machines": ("False", "WaitingForStart"),
    "starting": ("True", "ElasticJobRunning"),
}


async def test_the_bar_says_how_far_the_job_is_before_its_first_figure() -> None:
    cluster, shown = Cluster([], ends=""), asyncio.Queue[tuple[int, str]]()

    async def until(expected: tuple[int, str]) -> list[int]:
        """The numbers of figures that were shown meanwhile."""
        numbers = list[int]()
        async with asyncio.timeout(30):
            while (one := await shown.get()) != expected:
                numbers.append(one[0])
        return numbers

    async with session(cluster).open() as ebb:
        assert isinstance(ebb, Ebb)
        prepared = network.prepare_check(ebb, NetworkOptions(gpus=16, gpu="A100"))
        check = asyncio.create_task(
            network.check_network(ebb, prepared, note=lambda _: None, show=lambda done, _, text: shown.put_nowait((done, text)))
        )
        await until((0, "waiting for machines"))  # the controller has not seen it
        for text, (status, reason) in STAGES.items():
            condition = {"type": "Running", "status": status, "reason": reason, "message": ""}
            cluster.put({**cluster.jobs[0], "status": {"conditions": [condition]}})
            await until((0, text))
        lines, pod = log_of(machine_facts(0, "EFA", GIVEN)), worker_pod(0, job=prepared.body["metadata"]["name"])
        cluster.write(pod, *lines[:3])
        await until((1, "all-reduce of 8 B"))
        cluster.put(cluster.jobs[0])
        cluster.write(pod, lines[3])
        assert 0 not in await until((2, "all-reduce of 1 MB"))
        check.cancel()
        with pytest.raises(asyncio.CancelledError):
            await check


def test_a_reading_begins_anew_with_its_job() -> None:
    reading = NetworkReading()
    lines = log_of(machine_facts(0, "EFA", GIVEN))
    assert [reading.feed(line) for line in (*lines[:4], *lines[1:])] == [False, *[True] * 12]
    assert (reading.done, reading.is_complete, len(reading.figures)) == (7, True, 6)
    assert not any(reading.feed(line) for line in ("", f"{NETWORK_LINE} {{broken", f"the word {NETWORK_LINE} alone"))


def machine(
    worker: int = 0, network: str = "sockets", *, has: tuple[str, ...] = (), sees: tuple[str, ...] = ()
) -> NetworkMachine:
    return NetworkMachine(
        worker=worker, machine="m", network=network, provider="", gpu_direct=False, adapters=has, unreached=sees
    )  # fmt: skip


@pytest.mark.parametrize(
    ("machines", "choice", "expected", "found"),
    [
        ([machine()], "all", "", ("ok", "sockets (TCP): the machines have no faster network", "")),
        ([machine(has=("EFA",))], "0", "EFA", ("ok", "sockets, as --adapters 0 asks", "")),
        ([machine(has=("EFA",))], "1", "EFA", ("problem", "EFA was there (1 adapter on worker 0)", "aws-ofi-nccl")),
        ([machine(0, "RoCE"), machine(1, has=("RoCE",))], "all", "", ("problem", "RoCE was there (1 adapter on", "rdma-core")),
        ([machine(sees=("EFA",))], "all", "EFA", ("problem", "EFA should be there, worker 0 got no adapter", "device plugin")),
        ([machine(sees=("EFA",))], "all", "", ("problem", "worker 0 was given none of it", "--gpus in multiples of 8")),
        ([machine(sees=("RoCE",))], "all", "", ("ok", "sockets (TCP)", "")),  # a cloud's way to accelerate TCP
        ([machine(0, "EFA"), machine(1)], "all", "", ("problem", "workers used different networks: EFA, sockets", "--zone")),
        ([machine(0, "")], "all", "", ("warning", "NCCL did not say which network it used", "3 GB/s")),
        ([machine(0, "gIB")], "all", "RDMA", ("ok", "gIB", "")),
    ],
)
def test_a_network_is_judged_by_what_was_there(
    machines: list[NetworkMachine], choice: str, expected: str, found: tuple[str, str, str]
) -> None:
    two = machines if len(machines) > 1 else [*machines, replace(machines[0], worker=1)]
    seen = judge(tuple(two), (), choice=choice, device="cuda", expected=expected, gpus_per_machine=8)
    level, text, fix = found
    assert (seen.level, text in seen.text, fix in seen.fix, bool(seen.fix)) == (level, True, True, bool(fix)), seen


def test_one_machine_has_no_network_to_judge() -> None:
    found = judge((machine(has=("EFA",)),), (), choice="all", device="cuda", expected="EFA", gpus_per_machine=8)
    assert (found.level, "--gpus 16 needs two" in found.text) == ("ok", True)


def test_a_wrong_result_is_a_problem_whatever_the_network() -> None:
    wrong = NetworkFigure(
        operation="all-gather", bytes=2**20, seconds=1.0, times=1, algorithm_gb_s=1.0, bus_gb_s=1.0, wrong=2
    )  # fmt: skip
    found = judge((machine(0, "EFA"),), (wrong,), choice="all", device="cuda", expected="EFA", gpus_per_machine=8)
    assert (found.level, found.text) == ("problem", "all-gather of 1 MB gave 2 ranks a wrong result")
