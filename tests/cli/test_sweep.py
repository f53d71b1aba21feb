"""`ebb sweep` as it is typed and as it answers."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from ebb.cli.app import app
from ebb.cli.exits import Exit
from ebb.kube import Object
from tests.cli.world import NS, FakeKube, elastic_job, node_group, platform_map, session

A100 = node_group("spot-a100", "local-a", gpuType="A100", gpusPerNode=8, cpu=96, memoryGiB=1152)
SCAN = "sweep --name scan --gpus 1 --gpu T4 lr=0.1,0.01 wd=range(0,0.1,0.05)"


@pytest.fixture(autouse=True)
def _program_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder goes along with every run."""
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)


def ebb(kube: FakeKube, line: str) -> Result:
    return CliRunner().invoke(app, shlex.split(line), obj=session(kube), env={"COLUMNS": "80"})


def jobs(kube: FakeKube) -> list[Object]:
    return [item for item in kube._objects.values() if item["kind"] == "ElasticJob"]


def arguments(job: Object) -> list[str]:
    found: list[str] = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"]
    return found


def reports(kube: FakeKube, state: str, **progress: Any) -> None:
    """The controller writes the same status for every job; the loss is the number of the job."""
    for index, job in enumerate(jobs(kube)):
        kube.put({**job, "status": elastic_job(state=state)["status"] | {"progress": {"loss": index / 10, **progress}}})


def test_a_sweep_is_submitted_and_told() -> None:
    kube = FakeKube(platform_map())
    result = ebb(kube, f"{SCAN} --max-parallel 2 -- python train.py --epochs 3")
    assert result.exit_code == Exit.OK, result.output
    assert "4 runs like this, 2 at once: $0.32 per hour" in result.output
    assert "4 runs are submitted. Watch: ebb sweep show scan --watch" in result.output
    assert [arguments(job) for job in jobs(kube)] == [
        ["train.py", "--epochs", "3", "--lr", lr, "--wd", wd] for lr in ("0.1", "0.01") for wd in ("0", "0.05")
    ]
    again = ebb(kube, f"{SCAN} --max-parallel 2 -- python train.py --epochs 3")
    assert "0 runs are submitted, 4 were there" in again.output


@pytest.mark.parametrize("line", ["sweep run --name scan --hydra lr=1,2 train.py", "sweep --hydra --name scan lr=1,2 train.py"])
def test_run_may_be_left_out(line: str) -> None:
    kube = FakeKube(platform_map())
    assert ebb(kube, line).exit_code == Exit.OK
    assert [arguments(job) for job in jobs(kube)] == [["train.py", "lr=1"], ["train.py", "lr=2"]]


def test_one_table_of_a_sweep() -> None:
    kube = FakeKube(platform_map())
    ebb(kube, f"{SCAN} -- python train.py")
    reports(kube, "Running", step=150, totalSteps=400)
    names = [job["metadata"]["name"] for job in jobs(kube)]
    result = ebb(kube, "sweep show scan")
    assert result.output.splitlines() == [
        "POINT           JOB           STATE      STEP LOSS $",
        f"lr=0.01 wd=0    {names[2]} running 150/400  0.2 -",
        f"lr=0.01 wd=0.05 {names[3]} running 150/400  0.3 -",
        f"lr=0.1 wd=0     {names[0]} running 150/400    0 -",
        f"lr=0.1 wd=0.05  {names[1]} running 150/400  0.1 -",
        "",
        "scan: 4 running; best so far lr=0.1 wd=0 (loss 0)",
    ]


def test_the_schema_of_show() -> None:
    kube = FakeKube(platform_map())
    ebb(kube, "sweep --name scan --max-parallel 3 lr=0.1 -- python train.py")
    reports(kube, "Running", step=7)
    assert json.loads(ebb(kube, "sweep show scan -o json").stdout) == {
        "sweep": {
            "name": "scan",
            "namespace": NS,
            "metric": "loss",
            "best": "scan-bd63fa16",
            "max_parallel": 3,
            "usd_spent": None,
            "runs": [
                {
                    "job": "scan-bd63fa16", "point": {"lr": "0.1"}, "state": "running", "detail": "", "step": 7,
                    "total_steps": None, "metric": 0.0, "usd_spent": None, "stopped_because": "",
                    "command": "ebb submit --code . -- python train.py --lr 0.1", "source": "status",
                }
            ],
            "mode": "min",
            "notes": [],
        }
    }  # fmt: skip


def test_what_run_tells_as_json() -> None:
    kube = FakeKube(platform_map())
    told = json.loads(ebb(kube, "sweep --name scan lr=1,2 -o json -- python train.py").stdout)
    assert told["submitted"] == [run["job"] for run in told["sweep"]["runs"]]
    assert told["there"] == []


LINES = {
    "flags": "--gpus 2 --min 1 --max 4 --gpu T4 --zone local-b --env A=1 --env 'B=x y' --image me/own:1 --shm 1Gi --data digits",
    "on demand": "--gpus 8 --gpu A100 --spot",
}


@pytest.mark.parametrize("flags", LINES.values(), ids=LINES)
def test_the_printed_command_starts_the_same_run(flags: str) -> None:
    """Its manifest is the run's but for the name and what makes it one of a sweep."""
    kube = FakeKube(platform_map(A100))
    told = json.loads(ebb(kube, f"sweep --name scan {flags} text='\"a b\"' -o json -- python train.py --x 1").stdout)
    command = told["sweep"]["runs"][0]["command"].removeprefix("ebb ")
    name = told["submitted"][0]
    alone = yaml.safe_load(ebb(kube, command.replace(" -- ", f" --name {name} --dry-run -- ")).stdout)
    assert alone["spec"] == jobs(kube)[0]["spec"]


def test_dry_run_prints_every_manifest_and_sends_nothing() -> None:
    kube = FakeKube(platform_map())
    bodies = list(yaml.safe_load_all(ebb(kube, f"{SCAN} --dry-run -- python train.py").stdout))
    assert len({body["metadata"]["name"] for body in bodies}) == 4
    assert {method for method, _ in kube.sent} == {"GET"}
    told = json.loads(ebb(kube, f"{SCAN} --dry-run -o json -- python train.py").stdout)
    assert told["jobs"] == bodies


def test_a_watch_ends_with_the_runs_and_tells_a_failure_by_its_code() -> None:
    kube = FakeKube(platform_map())
    ebb(kube, "sweep --name scan lr=1,2 -- python train.py")
    reports(kube, "Succeeded", step=9)
    done = ebb(kube, "sweep show scan --watch")
    assert (done.exit_code, done.stdout) == (Exit.OK, "scan: 2 finished; best lr=1 (loss 0)\n")
    reports(kube, "Failed", step=9)
    assert ebb(kube, "sweep show scan --watch").exit_code == Exit.JOB_FAILED


RULES = {
    "--stop-worst 0.5 --after 5": "The worst 50% by loss are stopped at step 5, at twice it, and so on.",
    "--asha 3 --after 9 --metric samples_per_second": (
        "Runs pause at step 9; by samples_per_second the best of every 3 go on to 3 times as many, and so on."
    ),
}


@pytest.mark.parametrize(("flags", "said"), RULES.items(), ids=RULES)
def test_early_stopping_is_the_platforms_to_do(flags: str, said: str) -> None:
    """The command ends at once."""
    kube = FakeKube(platform_map())
    result = ebb(kube, f"sweep --name scan lr=1,2 {flags} -- python train.py")
    assert result.exit_code == Exit.OK, result.output
    assert f"{said} The platform does it, also when your laptop is closed." in result.stderr
    assert all(job["spec"]["group"]["halving"]["algorithm"] in flags for job in jobs(kube))


TPE = "sweep --name scan 'lr=tag(log,interval(1e-4,1))' arch=a,b --sampler tpe --random 3 --seed 7"
INDEX = "--env PIP_INDEX_URL=http://index.invalid"  # or the wheels would be fetched for workers that reach none


def settings(job: Object) -> dict[str, Any]:
    env = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["env"]
    found: dict[str, Any] = json.loads(next(item["value"] for item in env if item["name"] == "EBB_SWEEP_SEARCH"))
    return found


def test_runs_whose_points_optuna_chooses_are_told_how(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy\noptuna>=4\n")
    kube = FakeKube(platform_map())
    line = f"{TPE} --metric val_acc --mode max {INDEX} -- python train.py"
    assert ebb(kube, line).exit_code == Exit.OK
    found = jobs(kube)
    assert [job["metadata"]["name"] for job in found] == ["scan-001", "scan-002", "scan-003"]
    assert {tuple(arguments(job)) for job in found} == {("train.py", "--lr", "{lr}", "--arch", "{arch}")}
    told = [settings(job) for job in found]
    assert [each.pop("number") for each in told] == [1, 2, 3]
    study = told[0].pop("study")
    assert study.startswith("/mnt/output/.ebb/sweeps/elastic-job/scan-")
    assert [each.pop("study") for each in told[1:]] == [study] * 2
    assert told == [
        {
            "sampler": "tpe", "seed": 7, "metric": "val_acc", "mode": "max",
            "axes": [
                {"key": "lr", "low": 1e-4, "high": 1.0, "log": True},
                {"key": "arch", "values": ["a", "b"]},
            ],
        }
    ] * 3  # fmt: skip
    more = ebb(kube, line.replace("--random 3", "--random 4"))
    assert "1 run is submitted, 3 were there" in more.output
    assert settings(jobs(kube)[3])["study"] == study, "it learns from those that were there"
    other = ebb(kube, line.replace("--seed 7", "--seed 8"))
    assert (other.exit_code, len(jobs(kube))) == (Exit.USAGE, 4)
    assert "name 'scan' is a sweep with another sampler, seed, metric or other values" in other.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (TPE.replace("tpe", "cmaes"), "sampler 'cmaes' is unknown: use tpe."),
        (TPE.replace("--random 3", ""), "sampler needs the number of runs: add --random 20."),
        (TPE.replace("--random 3", "--random 0"), "random 0 is not a number of points"),
        (f"{TPE} --asha 3 --after 9", "sampler learns from runs that have finished"),
        ("sweep --name scan lr=1 --sampler tpe --random 3", "sampler has nothing to choose"),
        (f"{TPE} --metric acc", "metric 'acc': say which value is the best"),
        (TPE, "requirements.txt does not name it: add the line `optuna`"),
        (f"{TPE} --no-code", "no code brings it"),
    ],
)
def test_searches_that_are_refused(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "requirements.txt").write_text("numpy\n" if line == TPE else "optuna\n")
    kube = FakeKube(platform_map())
    result = ebb(kube, f"{line} {INDEX} -- python train.py")
    assert (result.exit_code, jobs(kube)) == (Exit.USAGE, []), result.output
    assert said in result.stderr.replace("\n", " ")


def test_stop_and_delete_of_a_whole_sweep() -> None:
    kube = FakeKube(platform_map(), elastic_job("other"))
    ebb(kube, "sweep --name scan lr=1,2 -- python train.py")
    assert ebb(kube, "sweep stop scan").output.startswith("2 runs of scan are stopped. Continue one: ebb resume scan-")
    assert [job["spec"].get("suspend") for job in jobs(kube)] == [None, True, True]
    assert ebb(kube, "sweep delete scan").output == "2 runs of scan are deleted.\n"
    assert [job["metadata"]["name"] for job in jobs(kube)] == ["other"]


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("sweep lr=1,2 -- python train.py", Exit.USAGE, "name is missing: give the sweep one"),
        ("sweep --name scan -- python train.py", Exit.USAGE, "nothing to vary: say what"),
        ("sweep --name scan lr=1,2", Exit.USAGE, "nothing to run: give the program after --"),
        ("sweep --name scan lr=1,,2 -- train.py", Exit.USAGE, "override 'lr=1,,2', column 6: a value is missing"),
        ("sweep --name scan 'lr=interval(0,1)' -- train.py", Exit.USAGE, "lr is an interval"),
        ("sweep --name Scan lr=1 -- train.py", Exit.USAGE, "name 'Scan' is not usable"),
        ("sweep --name scan lr=1 --max-parallel 0 -- train.py", Exit.USAGE, "max-parallel 0 is too few"),
        ("sweep --name scan lr=1 --stop-worst 0.5 -- train.py", Exit.USAGE, "stop-worst needs --after too"),
        ("sweep --name scan lr=1 --after 9 -- train.py", Exit.USAGE, "after needs --stop-worst or --asha too"),
        ("sweep --name scan lr=1 --asha 3 -- train.py", Exit.USAGE, "asha needs --after too, as in --asha 3 --after 200."),
        ("sweep --name scan lr=1 --asha 1 --after 9 -- train.py", Exit.USAGE, "asha 1 lets every run go on"),
        ("sweep --name scan lr=1 --asha 3 --stop-worst 0.5 --after 9 -- train.py", Exit.USAGE, "give one of them"),
        ("sweep --name scan lr=1 --stop-worst 5 --after 9 -- train.py", Exit.USAGE, "stop-worst 5 is not a fraction"),
        ("sweep --name scan lr=1 --metric accuracy -- train.py", Exit.USAGE, "metric 'accuracy': say which value is the best"),
        ("sweep --name scan lr=1 --mode best -- train.py", Exit.USAGE, "mode 'best' is unknown: use min or max"),
        ("sweep show scan --metric ''", Exit.USAGE, "metric is empty: use loss, samples_per_second, or one that"),
        (
            "sweep --name scan lr=1 --stop-worst 0.5 --after 9 --metric acc --mode max -- train.py",
            Exit.USAGE,
            "by what a job's status has, and metric 'acc' is not in it",
        ),
        (
            "sweep --name scan lr=1 --stop-worst 0.5 --after 9 --mode max -- train.py",
            Exit.USAGE,
            "mode 'max' would let --stop-worst stop the best runs by loss",
        ),
        ("sweep show nothing", Exit.NOT_FOUND, "no sweep named 'nothing' in elastic-job. There are none."),
        ("sweep show a=b", Exit.USAGE, "name 'a=b' is not usable"),
        ("sweep stop nothing", Exit.NOT_FOUND, "no sweep named 'nothing'"),
        ("sweep delete nothing", Exit.NOT_FOUND, "no sweep named 'nothing'"),
    ],
)
def test_misuses(line: str, code: Exit, said: str) -> None:
    kube = FakeKube(platform_map())
    result = ebb(kube, line)
    assert result.exit_code == code, result.output
    assert said in result.stderr
    assert "POST" not in {method for method, _ in kube.sent}


def test_code_travels_with_every_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    kube = FakeKube(platform_map())
    result = ebb(kube, f"sweep --name scan --code {tmp_path} lr=1,2 -- train.py")
    assert result.exit_code == Exit.OK, result.output
    maps = [item for item in kube._objects.values() if item["metadata"]["name"].endswith("-code")]
    assert [item["metadata"]["ownerReferences"][0]["name"] for item in maps] == [job["metadata"]["name"] for job in jobs(kube)]
    assert f"--code {tmp_path}" in jobs(kube)[0]["metadata"]["annotations"]["ebb.dev/command"]


def test_a_whole_elastic_job_is_no_sweep(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(elastic_job()))
    result = ebb(FakeKube(platform_map()), f"sweep -f {file} lr=1,2")
    assert result.exit_code == Exit.USAGE
    assert "a file of kind ElasticJob is one job" in result.stderr


def test_a_job_file_gives_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: scan\ngpus: 2\ncommand: python train.py --rate {lr}\n")
    kube = FakeKube(platform_map())
    assert ebb(kube, f"sweep -f {file} lr=1,2").exit_code == Exit.OK
    assert [arguments(job) for job in jobs(kube)] == [["train.py", "--rate", "1"], ["train.py", "--rate", "2"]]
