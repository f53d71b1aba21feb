"""The verbs on a cluster: what they send and print, how errors end, what -o json and --help promise."""

import json

import pytest
from typer.testing import CliRunner, Result

from ebb.cli.app import VERBS, app
from ebb.cli.exits import MEANINGS, Exit
from ebb.client import change
from ebb.client.errors import BadRequest
from ebb.client.times import seconds
from ebb.kube import Object
from tests.cli.test_look import RUNNING
from tests.cli.world import NS, FakeKube, elastic_job, node_group, platform_map, session, worker_pod


def invoke(*words: str, kube: FakeKube) -> Result:
    return CliRunner().invoke(app, list(words), obj=session(kube), env={"COLUMNS": "80", "TZ": "UTC"})


def test_list_status_and_gpus_on_a_cluster() -> None:
    kube = FakeKube(platform_map(node_group("od", "local-a", capacityType="on-demand")), RUNNING, worker_pod(0, node="n1"))
    assert "digits" in invoke("list", kube=kube).stdout
    assert "12:01:07  worker 1" in invoke("status", "digits", kube=kube).stdout
    assert invoke("gpus", kube=kube).stdout == (
        "GPU GPUS ZONE    CAPACITY  MACHINE     FREE NOW MAX $/GPU/H\n"
        "T4     1 local-a spot      g4dn.xlarge    0   0   4    0.16\n"
        "T4     1 local-b spot      g4dn.xlarge    0   0   4    0.16\n"
        "T4     1 local-c spot      g4dn.xlarge    0   0   4    0.16\n"
        "T4     1 local-a on-demand g4dn.xlarge    0   0   4    0.53\n"
        "Spot prices are assumed: on-demand less the group's discount.\n"
        "FREE can start at once; up to MAX machines boot when a job needs them, within 5m\n"
        "each.\n"
    )


def test_gpus_says_which_machines_have_a_fast_network() -> None:
    network = {"name": "EFA", "resources": {"vpc.amazonaws.com/efa": "4"}, "environment": {"FI_PROVIDER": "efa"}}
    fast = [node_group(f"fast-{zone}", zone, gpuType="A100", gpusPerNode=8, network=network) for zone in ("local-a", "local-b")]
    kube = FakeKube(platform_map(*fast))
    assert invoke("gpus", kube=kube).stdout.endswith("EFA connects workers that take whole machines with A100.\n")
    found = json.loads(invoke("gpus", "-o", "json", kube=kube).stdout)["groups"]
    shown = {**network, "claim": "", "selector": {}}
    assert [one["network"] for one in found] == [shown, shown, None, None, None]


def test_an_empty_list_says_how_to_begin() -> None:
    result = invoke("list", kube=FakeKube(platform_map()))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"No jobs in {NS} yet. Start one: ebb submit --gpus 1 -- python train.py\n"


def test_newest_job_first() -> None:
    old, new = elastic_job("old"), elastic_job("new")
    new["metadata"]["creationTimestamp"] = "2026-11-21T12:02:00Z"
    found = json.loads(invoke("list", "-o", "json", kube=FakeKube(platform_map(), old, new)).stdout)
    assert [job["name"] for job in found["jobs"]] == ["new", "old"]


def test_json_of_a_status_is_pinned() -> None:
    result = invoke("status", "digits", "-o", "json", kube=FakeKube(platform_map(), RUNNING, worker_pod(0, node="n1")))
    assert json.loads(result.stdout) == {
        "job": {
            "name": "digits", "namespace": NS, "state": "running", "detail": "", "workers": 2, "wanted_workers": 2,
            "min_workers": 1, "max_workers": 4, "gpus_per_worker": 1, "gpu_type": "T4", "capacity": "spot", "zone": "local-a",
            "step": 120, "total_steps": 560, "epoch": 2, "loss": 0.12345, "samples_per_second": 512.3, "world_size": 2,
            "generation": 3, "reclaims": 1, "failures": 1, "usd_spent": None, "usd_per_hour": None, "usd_on_demand": None,
            "created": "2026-11-21T12:00:00Z", "started": "2026-11-21T12:00:10Z",
            "ended": "",
            "history": [
                {"at": "2026-11-21T12:00:11.123Z", "what": "placed", "worker": None, "machine": "", "cause": "local-a"},
                {
                    "at": "2026-11-21T12:01:07.5Z", "what": "reclaimed", "worker": 1, "machine": "spot-t4-local-a-x1b2c",
                    "cause": "ReclaimNotice",
                },
                {
                    "at": "2026-11-21T12:02:09.5Z", "what": "failed", "worker": 0, "machine": "spot-t4-local-a-9d8e7",
                    "cause": "exit code 1",
                },
            ],
            "steps_per_second": None, "eta_seconds": None, "goodput": None, "seconds_lost": 0.0, "usd_saved": None, "network": "",
                "gpus": [], "held_worker": None, "held_until": "", "secrets": [], "tracker": "https://wandb.ai/team/digits/runs/5f3c",
        },
        "workers": [
            {
                "worker": 0, "state": "running", "machine": "n1", "since": "2026-11-21T12:00:20Z", "instance_type": "",
                "zone": "", "machine_since": "",
            },
        ],
        "dashboards": {},
        "reclaims": [
            {
                "at": "2026-11-21T12:01:07.5Z", "worker": 1, "machine": "spot-t4-local-a-x1b2c", "cause": "ReclaimNotice",
                "zone": "local-a", "back": "", "back_zone": "", "seconds": None,
            },
        ],
    }  # fmt: skip


ERRORS = {
    "no such job": (
        ["status", "digit"], 4, f"no job named 'digit' in {NS}. There are: digits.",
    ),
    "scale beyond max": (
        ["scale", "digits", "5"], 2,
        "gpus 5 is outside of what digits was submitted for: use 1 to 4, or submit it again with other --min and --max.",
    ),
    "scale to none": (
        ["scale", "digits", "0"], 2,
        "gpus 0 is outside of what digits was submitted for: use 1 to 4, or submit it again with other --min and --max.",
    ),
    "scale what is over": (
        ["scale", "done", "2"], 1, "done is finished: only a job that has not ended can be scaled. Submit it again.",
    ),
    "delete one that is not there": (["delete", "digits", "x"], 4, f"no job named 'x' in {NS}. There are: digits, done."),
    "no logs yet": (
        ["logs", "digits"], 4,
        "digits has no worker whose log can be read: it has not started yet, or left together with its machine. `ebb status "
        "digits` says which; -f waits for those that come.",
    ),
    "a time that is none": (
        ["wait", "digits", "--timeout", "soon"], 2, "timeout 'soon' is not a length of time: use for example 90s, 15m or 2h.",
    ),
    "wait is over": (["wait", "digits", "--timeout", "0.01"], 6, "digits is not over after 0.01 s; it goes on."),
}  # fmt: skip


@pytest.mark.parametrize(("words", "code", "sentence"), ERRORS.values(), ids=ERRORS)
def test_errors(words: list[str], code: int, sentence: str) -> None:
    jobs = [elastic_job("digits")] + ([elastic_job("done", state="Succeeded")] if words[0] in ("scale", "delete") else [])
    kube = FakeKube(platform_map(), *jobs)
    result = invoke(*words, kube=kube)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (code, f"ebb: {sentence}")
    assert not [sent for sent in kube.sent if sent[0] != "GET"]


def test_no_platform() -> None:
    result = invoke("list", kube=FakeKube())
    assert (result.exit_code, result.stderr) == (
        3,
        "ebb: no Ebb platform at https://127.0.0.1:6443: ConfigMap ebb-system/ebb-platform is not there. Run `pulumi up` on the "
        "stack, or set EBB_KUBECONFIG to the cluster that has one.\n",
    )


def test_no_answer() -> None:
    kube = FakeKube(platform_map())
    kube.break_connections()
    assert invoke("list", kube=kube).exit_code == Exit.NO_PLATFORM


def test_bad_kubeconfig() -> None:
    result = CliRunner().invoke(app, ["--kubeconfig", "/nowhere/config", "list"])
    assert (result.exit_code, result.stderr) == (
        3,
        "ebb: kubeconfig '/nowhere/config' is not a file. Set EBB_KUBECONFIG (or --kubeconfig) to the stack's kubeconfig, or run "
        "`make up` for a platform on this machine.\n",
    )


def test_scale() -> None:
    kube = FakeKube(platform_map(), RUNNING)
    assert invoke("scale", "digits", "3", kube=kube).stdout == "digits goes from 2 to 3 workers.\n"
    assert invoke("scale", "digits", "3", kube=kube).stdout == "digits has 3 GPUs already.\n"
    assert [method for method, _ in kube.sent].count("PATCH") == 1


def test_scale_counts_gpus_of_whole_workers() -> None:
    job = elastic_job()
    job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "8"
    assert change.workers_for(job, 24) == 3
    with pytest.raises(BadRequest, match="use 8 to 32, in steps of 8"):
        change.workers_for(job, 12)


def test_delete_waits_for_the_workers() -> None:
    kube = FakeKube(platform_map(), RUNNING, worker_pod(0), worker_pod(1))
    result = invoke("delete", "digits", kube=kube)
    assert (result.exit_code, result.stdout) == (0, "digits is deleted.\n")
    assert invoke("list", "-o", "json", kube=kube).stdout == '{\n  "jobs": []\n}\n'


WAITS = {"finished": (elastic_job(state="Succeeded"), 0), "failed": (elastic_job(state="Failed", message="exit code 1."), 5)}


@pytest.mark.parametrize(("job", "code"), WAITS.values(), ids=WAITS)
def test_watch_into_a_pipe_is_a_line_for_each_change(job: Object, code: int) -> None:
    result = invoke("status", "digits", "--watch", kube=FakeKube(platform_map(), job))
    assert result.exit_code == code
    assert result.stdout.startswith(f"digits is {'failed' if code else 'finished'}")
    lines = invoke("status", "digits", "--watch", "-o", "json", kube=FakeKube(platform_map(), job)).stdout.splitlines()
    assert [json.loads(line)["job"]["name"] for line in lines] == ["digits"]


@pytest.mark.parametrize(("job", "code"), WAITS.values(), ids=WAITS)
def test_wait_tells_how_a_job_ended(job: Object, code: int) -> None:
    result = invoke("wait", "digits", "-o", "json", kube=FakeKube(platform_map(), job))
    assert (result.exit_code, json.loads(result.stdout)["job"]["name"]) == (code, "digits")


@pytest.mark.parametrize(("text", "length"), [("90", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400)])
def test_lengths_of_time(text: str, length: float) -> None:
    assert seconds(text, "timeout") == length


def test_every_verb_explains_itself_in_80_columns() -> None:
    for words in ([], *([verb] for verb in VERBS)):
        result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"})
        assert result.exit_code == 0, words
        assert max(map(len, result.stdout.splitlines())) <= 80, result.stdout


def test_help_names_the_exit_codes() -> None:
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout
    assert all(f"{int(code):>5}  {MEANINGS[code]}" in text for code in Exit)
