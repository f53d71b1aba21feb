"""What `python -m benchmarks.controller` makes of what it measured: figures, verdicts, counts. No cluster is started here."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from benchmarks.controller import contenders, figures, plane, processes
from benchmarks.controller.__main__ import Measured, read_settings
from benchmarks.controller.contenders import CONTENDERS, Contender, named
from benchmarks.controller.figures import PROMISES, Figures, Promise
from benchmarks.controller.fleet import Machine, kwok_config, node
from benchmarks.controller.load import Bench, Run, Sizes
from benchmarks.controller.pods import Pods
from devcluster.tools import Tool
from ebb.api.spec import Job
from ebb.kube import Kube, NotFound, Object, Resource

OURS, TUNED, SHIPPED, JOBSET = CONTENDERS


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([3.0], 50, 3.0), ([4, 1, 3, 2], 50, 2), ([4, 1, 3, 2], 51, 3), (range(1, 151), 99, 149), (range(1, 151), 100, 150)],
    ids=["one value", "half of four", "more than half", "p99 of 150", "worst"],
)
def test_a_percentile_is_a_measured_value(values: list[float], percent: float, expected: float) -> None:
    assert figures.percentile(values, percent) == expected


def test_rounds_become_medians_and_a_cap_is_never_hidden() -> None:
    rounds: list[Figures] = [{"a": 3.0, "b": 1.0}, {"a": 1.0, "b": None}, {"a": 2.0, "b": 1.0}]
    assert figures.median(rounds) == {"a": 2.0, "b": None}


FAST = Promise(figure="ours", limit="theirs", meaning="not slower")
SMALL = Promise(figure="ours", limit=2.0, meaning="at most two")


@pytest.mark.parametrize(
    ("promise", "measured", "kept"),
    [
        (FAST, {"ours": 1.0, "theirs": 1.0}, True),
        (FAST, {"ours": 1.1, "theirs": 1.0}, False),
        (FAST, {"ours": 1.0, "theirs": None}, True),
        (FAST, {"ours": None, "theirs": None}, False),
        (FAST, {"ours": 1.0}, None),
        (FAST, {"theirs": 1.0}, None),
        (SMALL, {"ours": 2.0}, True),
        (SMALL, {"ours": 2.1}, False),
        (SMALL, {"ours": None}, False),
        (SMALL, {}, None),
    ],
    ids=[
        "as fast",
        "slower",
        "rival capped",
        "both capped",
        "no rival",
        "not ours",
        "at the limit",
        "above it",
        "capped",
        "none",
    ],
)
def test_when_a_promise_is_kept(promise: Promise, measured: Figures, kept: bool | None) -> None:
    (verdict,) = figures.judge(measured, [promise])
    assert verdict.kept is kept


def test_the_report_tells_every_verdict_and_nothing_that_was_not_measured() -> None:
    verdicts = figures.judge({"ours": 3.0, "theirs": None}, [FAST, SMALL, Promise(figure="x", limit=1.0, meaning="unknown")])
    assert figures.report(verdicts) == ["won  not slower: 3", "LOST at most two: 3, at most 2"]


def test_the_last_line_has_every_figure_the_ratios_and_the_score() -> None:
    measured: Figures = {
        "create_1280_seconds": 5.0,
        "kubeflow_tuned_create_1280_seconds": 10.0,
        "jobset_create_1280_seconds": 4.0,
        "kubeflow_vanished_seconds": None,
    }
    line = json.loads(figures.last_line(measured, figures.judge(measured)))
    ratios = {"ratio_to_kubeflow_tuned_create_1280": 0.5, "ratio_to_jobset_create_1280": 1.25}
    assert line == {**measured, **ratios, "promises_kept": 1, "promises_broken": 0}


def test_every_promise_is_about_a_figure_of_the_full_size() -> None:
    sizes = Sizes()
    names = {f"{sizes.jobs * sizes.workers}", f"{sizes.many_jobs}_jobs", f"replace_{sizes.lost}", "vanished", "silent"}
    names.add(f"{sizes.full_jobs * sizes.full_workers}")
    for promise in PROMISES:
        assert any(name in promise.figure for name in names), promise.figure


LINE = {"verb": "create", "user": {"username": "me"}, "objectRef": {"resource": "pods"}, "requestURI": "/api/v1/x"}


def test_calls_are_counted_of_some_users_by_verb_and_resource() -> None:
    events: list[Object] = [
        LINE,
        LINE,
        {**LINE, "user": {"username": "somebody else"}},
        {**LINE, "user": {"username": "my helper"}},
        {**LINE, "verb": "watch"},
        {**LINE, "verb": "update", "objectRef": {"resource": "leases"}},
        {**LINE, "verb": "update", "objectRef": {"resource": "elasticjobs", "subresource": "status"}},
        {"verb": "get", "user": {"username": "me"}, "requestURI": "/api"},
    ]
    log = "\n".join(map(json.dumps, events))
    assert plane.count_calls(log, {"me", "my helper"}) == {"create pods": 3, "update elasticjobs/status": 1, "get /api": 1}


def test_memory_is_read_from_the_kernels_words() -> None:
    text = "Name:\tpython\nVmHWM:\t   98304 kB\nVmRSS:\t   65536 kB\nThreads:\t2\nvoluntary_ctxt_switches:\t1\n"
    assert processes.parse_status(text) == {"VmHWM": 98304, "VmRSS": 65536}


def _pod(name: str, uid: str, prefix: str | None = None, **status: str) -> Object:
    metadata = {"name": name, "uid": uid, **({"generateName": prefix} if prefix else {})}
    return {"metadata": metadata, "spec": {"nodeName": "n"}, "status": status}


def test_a_replacement_is_the_next_pod_of_that_name() -> None:
    pods = Pods()
    pods.saw("ADDED", _pod("a", "1", phase="Pending"), 1.0)
    pods.saw("MODIFIED", _pod("a", "1", phase="Running"), 2.0)
    pods.saw("MODIFIED", _pod("a", "1", phase="Running"), 3.0)
    pods.saw("ADDED", _pod("b", "2", phase="Running"), 4.0)
    lost = pods.lives["1"]
    assert (pods.num_running, pods.replacement(lost), pods.running_by(1)) == (2, None, 2.0)
    pods.saw("DELETED", _pod("a", "1", phase="Running"), 5.0)
    pods.saw("ADDED", _pod("a", "3", phase="Pending"), 6.5)
    pods.saw("DELETED", _pod("a", "1", phase="Running"), 7.0)  # told again, as after a broken watch
    after = pods.replacement(lost)
    assert after is not None
    assert (after.uid, after.created - (lost.gone or 0.0), pods.num_running) == ("3", 1.5, 1)
    assert [life.uid for life in pods.present] == ["2", "3"]
    assert pods.created_by(3) == 6.5


def test_a_pod_of_a_job_ends_when_it_has_failed_and_another_name_takes_its_place() -> None:
    pods = Pods()
    pods.saw("ADDED", _pod("job-0-x", "1", "job-0-", phase="Running"), 1.0)
    pods.saw("ADDED", _pod("job-1-y", "2", "job-1-", phase="Running"), 1.0)
    pods.saw("MODIFIED", _pod("job-0-x", "1", "job-0-", phase="Failed"), 2.0)
    lost = pods.lives["1"]
    assert (lost.ended, lost.gone, pods.num_running) == (2.0, None, 1)
    pods.saw("ADDED", _pod("job-0-z", "3", "job-0-", phase="Pending"), 12.0)
    pods.saw("DELETED", _pod("job-0-x", "1", "job-0-", phase="Failed"), 13.0)
    after = pods.replacement(lost)
    assert after is not None
    assert (after.uid, lost.ended, lost.gone, pods.num_running) == ("3", 2.0, 13.0, 1)
    assert pods.replacement(pods.lives["2"]) is None


def test_all_contenders_run_the_same_elastic_job() -> None:
    pod: Object = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "worker", "image": "i"}]}}
    ours, theirs = (one.job("j", workers=64, pod=pod) for one in (OURS, TUNED))
    job = Job.of({**ours, "metadata": {**ours["metadata"], "namespace": "n", "uid": "u"}})
    policy, worker = theirs["spec"]["elasticPolicy"], theirs["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert (job.min_replicas, job.worker.replicas, job.max_replicas) == (32, 64, 64)
    assert (policy["minReplicas"], worker["replicas"], policy["maxReplicas"]) == (32, 64, 64)
    assert job.worker.restart_policy == worker["restartPolicy"]
    assert named(worker["template"], "x") == named(job.worker.template, "x")
    assert SHIPPED.job("j", workers=64, pod=pod) == theirs
    assert (SHIPPED.flags, len(TUNED.flags)) == ((), 3)


def test_a_job_set_has_one_indexed_job_of_all_workers_that_counts_failures_by_index() -> None:
    pod: Object = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "worker", "image": "i"}]}}
    body = JOBSET.job("j", workers=64, pod=pod)
    (replicated,) = body["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    assert (body["apiVersion"], body["kind"], body["spec"]["suspend"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet", False)
    assert (replicated["replicas"], job["completionMode"], job["parallelism"], job["completions"]) == (1, "Indexed", 64, 64)
    assert "backoffLimit" not in job, "beside a limit for the whole Job, 7 lost workers wait for 10 minutes"
    assert job["template"]["spec"]["restartPolicy"] == "Never", "Kubernetes refuses a podFailurePolicy beside any other"
    assert pod["spec"].keys() == {"containers"}, "the template of the others is left as it was"
    assert JOBSET.job("j", workers=4, pod=pod, waiting=True)["spec"]["suspend"] is True


class Go:
    """A Go command on a machine that has downloaded nothing yet."""

    def __init__(self, module: Path, file: Path) -> None:
        self._module, self._file = module, file

    async def run(self, *args: object) -> str:
        if "download" not in args:
            return "\n"  # as `go list -m -f {{.Dir}}` says of a module that is not there
        self._file.parent.mkdir(parents=True)
        for file in (self._file, self._file.with_name("kustomization.yaml")):
            file.write_text("kind: any")
        return json.dumps({"Dir": str(self._module)})


@pytest.mark.parametrize(
    ("tool", "file"),
    [
        (contenders.OPERATOR, "manifests/base/crds/kubeflow.org_pytorchjobs.yaml"),
        (contenders.JOBSET, "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"),
    ],
    ids=["Kubeflow", "JobSet"],
)
async def test_the_crds_of_a_module_are_found_on_a_fresh_machine(
    tool: Tool, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contenders, "run", Go(tmp_path, tmp_path / file).run)
    assert await contenders.module_crds(tool, str(Path(file).parent)) == [tmp_path / file]


async def test_a_module_without_crds_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def without(*_: object) -> str:
        return json.dumps({"Dir": str(tmp_path)})

    monkeypatch.setattr(contenders, "run", without)
    with pytest.raises(processes.BenchmarkError, match="has no CRDs of jobset"):
        await contenders.module_crds(contenders.JOBSET, "config")


async def test_a_kind_is_used_when_the_server_answers_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "POLL_SECONDS", 0.0)
    asked = []

    class Server:
        async def list_page(self, kind: Resource, *, limit: int) -> None:
            asked.append((kind.path(), limit))
            if len(asked) < 3:
                raise NotFound("404 page not found", status=404)

    names = {"plural": "pytorchjobs", "kind": "PyTorchJob"}
    versions = [{"name": "v1", "served": True}, {"name": "v0", "served": False}]
    crd = {"metadata": {"name": "pytorchjobs"}, "spec": {"group": "kubeflow.org", "names": names, "versions": versions}}
    await contenders.served(cast("Kube", Server()), crd)
    assert asked == [("/apis/kubeflow.org/v1/pytorchjobs", 1)] * 3


def test_a_machine_is_a_ready_node_of_its_group() -> None:
    plain, doomed = (
        node(Machine(name="m", group="g", room=7, doomed=value, closed=value), "192.0.2.7") for value in (False, True)
    )
    assert plain["status"]["allocatable"]["pods"] == "7"
    assert plain["status"]["conditions"][0]["status"] == "True"
    assert {"type": "InternalIP", "address": "192.0.2.7"} in plain["status"]["addresses"]
    assert (plain["spec"], doomed["spec"]) == ({}, {"unschedulable": True})
    # The big kwok must not look after a machine that has one of its own.
    assert plain["metadata"]["labels"]["benchmark.ebb.dev/fleet"] != doomed["metadata"]["labels"]["benchmark.ebb.dev/fleet"]


@pytest.mark.parametrize(("address", "has"), [("192.0.2.7", True), ("", False)], ids=["with an address", "without a network"])
def test_pods_have_the_address_of_this_host(address: str, has: bool) -> None:
    template = json.dumps(kwok_config(address))
    assert ("podIP: 192.0.2.7" in template) is has
    assert "ADDRESSES" not in template


def test_a_trial_is_smaller_in_all_and_judged_by_no_promise_of_size() -> None:
    settings = read_settings(["--jobs", "2", "--only", "many,create", "--contenders", "tuned,ours"])
    assert (settings.sizes.jobs, settings.sizes.many_jobs, settings.sizes.lost) == (2, 50, 3)
    assert settings.scenarios == ("create", "many")
    assert [contender.name for contender in settings.contenders] == ["tuned", "ours"]
    assert (settings.sizes.full_jobs, settings.sizes.widest, settings.sizes.waiting) == (20, 100, 500)
    assert read_settings([]).sizes == Sizes()


def test_the_everyday_run_has_the_everyday_scenarios_and_the_large_ones_are_asked_for() -> None:
    everyday = read_settings([]).scenarios
    assert everyday == ("create", "many", "replace", "nodes")
    assert read_settings(["--sizes", "large"]).scenarios == ("full", "wide", "waiting")
    assert read_settings(["--sizes", "all"]).scenarios == (*everyday, "full", "wide", "waiting")
    assert read_settings(["--sizes", "large", "--only", "create"]).scenarios == ("create",)


async def test_an_interrupted_run_goes_on_with_what_was_not_measured(tmp_path: Path) -> None:
    file, done = tmp_path / "measured.json", list[str]()
    bench = cast("Bench", None)

    async def scenario(_: Bench, contender: Contender) -> Figures:
        done.append(contender.name)
        return {"seconds": 1.5, "capped": None}

    for arguments, expected in (([], ["ours"]), (["--resume"], []), ([], ["ours"])):
        measured = Measured.opened(file, read_settings(arguments))
        assert await measured.once("create ours 0", scenario, bench, OURS) == {"seconds": 1.5, "capped": None}
        assert done == expected
        done.clear()
    with pytest.raises(processes.BenchmarkError, match="of a run with other options"):
        Measured.opened(file, read_settings(["--resume", "--jobs", "2"]))


async def test_a_controller_that_ends_is_waited_for_no_longer(tmp_path: Path) -> None:
    process = await processes.Process.start("controller", ["sh", "-c", "echo lost its lease; exit 3"], tmp_path)
    bench = cast("Bench", SimpleNamespace(plane=SimpleNamespace(kube=None)))
    async with asyncio.timeout(30):
        with pytest.raises(processes.BenchmarkError, match=r"controller ended with 3.*\n.*lost its lease"):
            await Run(bench, OURS, "trial", process, Pods()).until_running(1)


def test_jobs_that_wait_are_a_sweep_of_ours_and_suspended_ones_of_the_operator() -> None:
    pod: Object = {"spec": {"containers": [{"name": "worker", "image": "i"}]}}
    ours, theirs = (one.job("j", workers=4, pod=pod, waiting=True) for one in (OURS, TUNED))
    job = Job.of({**ours, "metadata": {**ours["metadata"], "namespace": "n", "uid": "u"}})
    assert job.spec.group is not None
    assert (job.spec.group.max_parallel, theirs["spec"]["runPolicy"]) == (1, {"suspend": True})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "speed"], "--only 'speed' is none of create, many, replace, nodes, full, wide, waiting"),
        (["--contenders", "ours,theirs"], "--contenders 'theirs' is none of ours, tuned, shipped, jobset"),
        (["--jobs", "21"], "--jobs 21 is not between 1 and 20"),
        (["--repeat", "0"], "--repeat 0 is less than 1"),
    ],
    ids=["scenario", "contender", "size", "rounds"],
)
def test_a_wrong_option_says_what_is_allowed(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings(arguments)
    assert message in capsys.readouterr().err
