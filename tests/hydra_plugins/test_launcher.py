"""The launcher in a real multirun of Hydra, a program of its own, against an API server that answers over HTTP."""

import asyncio
import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from ebb.client import BadRequest
from ebb.client.sweep import RunView, asha, stop_worst
from ebb.kube import Object
from tests.cli.serving import serving
from tests.cli.world import FakeKube, elastic_job, known_secret, platform_map

# By name: type checkers take the folder for another package.
RUNS: Any = importlib.import_module("hydra_plugins.ebb_launcher._runs")
CHECKOUT = Path(__file__).parents[2]
TRAIN = """
import hydra

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(config):
    raise SystemExit("this machine does not train")

main()
"""


class World(FakeKube):
    """Jobs are over as soon as they are made: their loss is their lr, and lr=9 fails."""

    def _create(self, path: str, body: Object) -> Object:
        made = super()._create(path, body)
        if made["kind"] == "ElasticJob":
            rate = next(float(word.removeprefix("lr=")) for word in arguments(made) if word.startswith("lr="))
            state = "Failed" if rate == 9 else "Succeeded"
            status = elastic_job(state=state, message="it diverged")["status"] | {"progress": {"step": 9, "loss": rate}}
            self.put({**made, "status": status})
        return made


def arguments(job: Object) -> list[str]:
    found: list[str] = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"]
    return found


async def train(folder: Path, kubeconfig: Path, *words: str, program: tuple[str, ...] = ("train.py",)) -> tuple[int, str]:
    """The user's command; its exit code, and all that it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *program, "-m", "hydra/launcher=ebb", f"hydra.launcher.kubeconfig={kubeconfig}", *words,
        cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={"PYTHONPATH": str(CHECKOUT), "PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, said.decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's program and its configuration."""
    program = tmp_path / "program"
    (program / "conf").mkdir(parents=True)
    (program / "conf" / "config.yaml").write_text("lr: 0.5\nwd: 0\n")
    (program / "train.py").write_text(TRAIN)
    return program


def jobs(kube: FakeKube) -> list[Object]:
    return [item for item in kube._objects.values() if item["kind"] == "ElasticJob"]


@pytest.mark.e2e
async def test_a_multirun_becomes_jobs_of_one_group_and_is_waited_for(folder: Path, tmp_path: Path) -> None:
    kube = World(platform_map(), known_secret("hf-token", variable="HF_TOKEN"))
    async with serving(kube, tmp_path) as kubeconfig:
        words = ["hydra.launcher.name=scan", "hydra.launcher.max_parallel=1", "+hydra.launcher.env.A=x", "lr=0.1,0.01", "wd=3"]
        words.append("hydra.launcher.secret=[hf-token]")
        code, said = await train(folder, kubeconfig, *words)
        assert code == 0, said
        assert "sweep scan: 2 runs are submitted, 0 were there. Look: ebb sweep show scan" in said
        assert "sweep scan: 2 finished" in said
        run_folder = "hydra.run.dir=${oc.env:EBB_OUTPUT_DIR}/hydra"
        assert [arguments(job) for job in jobs(kube)] == [["train.py", run_folder, f"lr={lr}", "wd=3"] for lr in ("0.1", "0.01")]
        container = jobs(kube)[0]["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
        assert {"name": "A", "value": "x"} in container["env"]
        assert [item["name"] for item in container["env"] if "valueFrom" in item] == ["HF_TOKEN"]
        assert "EBB_CODE_SHA256" in {item["name"] for item in container["env"]}, "the folder travels with it"
        assert [job["spec"]["group"] for job in jobs(kube)] == [{"name": "scan", "maxParallel": 1}] * 2
        assert [json.loads(job["metadata"]["annotations"]["ebb.dev/sweep-point"])["lr"] for job in jobs(kube)] == ["0.1", "0.01"]
        code, said = await train(folder, kubeconfig, *words)
        assert code == 0, said
        assert "0 runs are submitted, 2 were there" in said


@pytest.mark.e2e
async def test_a_worker_starts_the_program_as_hydra_does(folder: Path, tmp_path: Path) -> None:
    """With the words of a job, and with its output folder, where Hydra keeps what the run was."""
    kube = World(platform_map())
    async with serving(kube, tmp_path) as kubeconfig:
        assert (await train(folder, kubeconfig, "lr=0.1", "~wd"))[0] == 0
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments(jobs(kube)[0]), cwd=folder, env={"EBB_OUTPUT_DIR": str(tmp_path / "job")},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said = (await process.communicate())[1].decode()
    assert said == "this machine does not train\n"
    assert (tmp_path / "job" / "hydra" / ".hydra" / "overrides.yaml").read_text() == "- lr=0.1\n- ~wd=null\n"


@pytest.mark.e2e
async def test_a_run_that_fails_fails_the_multirun_with_its_reason(folder: Path, tmp_path: Path) -> None:
    async with serving(World(platform_map()), tmp_path) as kubeconfig:
        code, said = await train(folder, kubeconfig, "lr=0.1,9")
    assert code != 0
    assert "1 failed, 1 finished" in said
    assert re.search(r"train-\w{8}-\w{8} is failed: it diverged\. Look: ebb logs train-", said), said


@pytest.mark.e2e
async def test_hydra_does_not_wait_for_ebb_where_it_is_not_launched_by_it(folder: Path) -> None:
    """Hydra imports every plugin at each start of each program."""
    (folder / "train.py").write_text(
        TRAIN.replace('raise SystemExit("this machine does not train")', "import sys; print(*sys.modules)")
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "train.py", cwd=folder, env={"PYTHONPATH": str(CHECKOUT)}, stdout=asyncio.subprocess.PIPE
    )
    loaded = (await process.communicate())[0].decode().split()
    assert "hydra_plugins.ebb_launcher.launcher" in loaded
    assert "workloads" not in loaded


@pytest.mark.e2e
async def test_a_module_and_another_configuration_are_passed_on(folder: Path, tmp_path: Path) -> None:
    (folder / "conf" / "other.yaml").write_text("lr: 0.7\n")
    kube = World(platform_map())
    async with serving(kube, tmp_path) as kubeconfig:
        code, said = await train(folder, kubeconfig, "lr=0.1", program=("-m", "train", "--config-name", "other"))
    assert code == 0, said
    assert arguments(jobs(kube)[0])[:4] == ["-m", "train", "--config-name", "other"]


@pytest.mark.e2e
async def test_equal_points_are_one_job_and_another_multirun_has_its_own(folder: Path, tmp_path: Path) -> None:
    """Some sweepers ask for a point twice; a folder of the multirun may be a fixed one."""
    kube = World(platform_map())
    async with serving(kube, tmp_path) as kubeconfig:
        for _ in range(2):
            code, said = await train(folder, kubeconfig, "hydra.sweep.dir=out", "lr=0.1,0.1,0.2")
            assert code == 0, said
            assert "2 runs are submitted, 0 were there" in said
    assert len(jobs(kube)) == 4


@pytest.mark.e2e
async def test_a_script_is_named_from_the_folder_that_travels(folder: Path, tmp_path: Path) -> None:
    kube = World(platform_map())
    async with serving(kube, tmp_path) as kubeconfig:
        words = ("hydra.launcher.code=program", "lr=0.1")
        code, said = await train(folder.parent, kubeconfig, *words, program=("program/train.py",))
    assert code == 0, said
    assert arguments(jobs(kube)[0])[0] == "train.py"


@pytest.mark.e2e
async def test_what_cannot_be_submitted_is_a_sentence(folder: Path, tmp_path: Path) -> None:
    kube = World(platform_map())
    async with serving(kube, tmp_path) as kubeconfig:
        code, said = await train(folder, kubeconfig, "hydra.launcher.gpu=H100", "lr=1,2")
    assert code != 0
    assert "gpu 'H100'" in said
    assert not jobs(kube)


def seen(job: str, state: str, metric: float | None, because: str = "") -> RunView:
    return RunView(
        job=job, point={}, state=state, detail="", step=9, total_steps=20, metric=metric, usd_spent=None,
        stopped_because=because, command="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("run", "metric", "failure"),
    [
        (seen("a", "finished", 0.5), 0.5, ""),
        (seen("a", "stopped", 0.5, "among the worst"), 0.5, ""),
        (seen("a", "stopped", 0.5), None, "a is stopped. Look: ebb logs a"),
        (seen("a", "stopped", None, "among the worst"), None, "a is stopped: among the worst. Look: ebb logs a"),
        (None, None, "a was deleted before it was over"),
    ],
    ids=["finished", "stopped by the rule", "stopped by people", "no number", "deleted"],
)
def test_what_a_run_returns_to_hydra(run: RunView | None, metric: float | None, failure: str) -> None:
    assert RUNS._outcome("a", run) == RUNS.Outcome(job="a", metric=metric, failure=failure)


def test_the_rule_is_the_platforms_to_keep() -> None:
    assert RUNS._rule(RUNS.LauncherSettings(metric="val_acc")) is None
    assert RUNS._rule(RUNS.LauncherSettings(asha=3, after=9, metric="val_acc")) == asha(3, after=9, metric="loss")
    assert RUNS._rule(RUNS.LauncherSettings(stop_worst=0.5, after=9)) == stop_worst(0.5, after=9)
    with pytest.raises(BadRequest, match="give exactly two"):
        RUNS._rule(RUNS.LauncherSettings(asha=3))
    with pytest.raises(BadRequest, match="give exactly two"):
        RUNS._rule(RUNS.LauncherSettings(asha=3, stop_worst=0.5, after=9))
