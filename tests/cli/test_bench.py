"""`ebb bench scaling`: the jobs that it sends, one after the other, how it goes on, its figures, page and refusals."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ebb.api.contract import FAILED, SUCCEEDED, SUSPENDED
from ebb.cli.app import app
from ebb.cli.exits import Exit
from ebb.client.jobs import watch
from ebb.kube import Object
from tests.cli.world import FakeKube, elastic_job, node_group, platform_map, session

MANY = node_group("spot-t4-many", "local-a", max=64)
SECONDS = {1: 900.0, 4: 400.0, 8: 210.0, 16: 125.0}
HEAD = "bench scaling --gpus 4,8,16 --data imagenet"


class Cluster(FakeKube):
    """A job ends when somebody looks at it: after SECONDS of steps for its number of GPUs, or in failure for `failing`. The next
    one must not come before that."""

    def __init__(self, *, failing: int = 0) -> None:
        super().__init__(platform_map(MANY))
        self.failing = failing
        self.sizes: list[int] = []

    def _create(self, path: str, body: Object) -> Object:
        made = super()._create(path, body)
        if made["kind"] == "ElasticJob":
            assert [job for job in jobs(self) if "status" not in job] == [made]
            self.sizes.append(made["spec"]["maxReplicas"])
        return made

    async def request(self, method: str, path: str, **rest: Any) -> Object:
        if method == "GET" and path.endswith("/elasticjobs"):
            for job in [job for job in jobs(self) if "status" not in job]:
                gpus = job["spec"]["maxReplicas"]
                self.put({**job, "status": ended(SECONDS[gpus], gpus, FAILED if gpus == self.failing else SUCCEEDED)})
        return await super().request(method, path, **rest)


def ended(seconds: float, gpus: int, state: str = SUCCEEDED) -> Object:
    progress = {"step": 100, "totalSteps": 100, "usefulSeconds": seconds, "worldSize": gpus, "samplesPerSecond": 6400 / seconds}
    cost = {"usdSpent": 0.01 * gpus, "usdOnDemand": 0.03 * gpus, "usdPerHour": 0.0, "at": "2026-11-21T13:00:00Z"}
    times = {"completionTime": "2026-11-21T13:00:00Z", "placement": {"zone": "local-a", "gpuType": "T4"}}
    status: Object = elastic_job(state=state)["status"]
    return status | times | {"progress": progress, "cost": cost}


def jobs(kube: FakeKube) -> list[Object]:
    return [item for item in kube._objects.values() if item["kind"] == "ElasticJob"]


def arguments(job: Object) -> list[str]:
    found: list[str] = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"]
    return found


def ebb(kube: FakeKube, line: str) -> Result:
    return CliRunner().invoke(app, shlex.split(line), obj=session(kube), env={"COLUMNS": "80", "EBB_USER": "ada"})


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(watch, "TICK_SECONDS", 0.01)


def test_one_gpu_is_one() -> None:
    notes = ebb(Cluster(), "bench scaling --gpus 1 --data imagenet").stderr.splitlines()
    assert notes[1:] == ["1 GPU (1 of 1): finished, step 100/100", "1 GPU: an epoch in 900.0 s"]


def test_on_a_terminal_its_sentences_are_wrapped_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `ebb check` and `ebb sweep` say what they are about to do; a terminal itself cuts words."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    said = ebb(Cluster(), "bench scaling --gpus 4 --data imagenet").stderr
    assert said.startswith("scaling-resnet50: 1 job, each one epoch of ResNet-50 on images of 224 pixels. \nPer hour: ")


def test_it_measures_one_size_after_the_other_and_writes_the_page() -> None:
    cluster = Cluster()
    result = ebb(cluster, HEAD)
    assert (result.exit_code, result.exception) == (0, None), result.output
    assert cluster.sizes == [4, 8, 16]
    notes = result.stderr.splitlines()
    assert notes[0] == (
        "scaling-resnet50: 3 jobs, one after the other, each one epoch of ResNet-50 on images of 224 pixels. Per hour: $0.63 on "
        "4 GPUs, $1.26 on 8 GPUs, $2.52 on 16 GPUs."
    )
    assert notes[1:] == [
        "4 GPUs (1 of 3): finished, step 100/100",
        "4 GPUs: an epoch in 400.0 s",
        "8 GPUs (2 of 3): finished, step 100/100",
        "8 GPUs: an epoch in 210.0 s, 1.90 times as fast",
        "16 GPUs (3 of 3): finished, step 100/100",
        "16 GPUs: an epoch in 125.0 s, 3.20 times as fast",
    ]
    assert result.stdout.splitlines()[:4] == [
        "GPUS EPOCH      SAMPLES/S SPEED-UP IDEAL EFFICIENCY RECLAIMS    $",
        "   4 6 min 40 s        16     1.00     1       100%        0 0.04",
        "   8 3 min 30 s     30.48     1.90     2        95%        0 0.08",
        "  16 2 min 5 s       51.2     3.20     4        80%        0 0.16",
    ]
    assert result.stdout.splitlines()[-1] == "scaling-resnet50.html"
    page = Path("scaling-resnet50.html").read_text()
    assert "80 %" in page
    assert page.count("<figure") == 4


def test_a_job_has_all_its_gpus_or_none_and_a_batch_that_grows_with_them() -> None:
    cluster = Cluster()
    ebb(cluster, HEAD)
    last = jobs(cluster)[-1]
    assert last["metadata"]["name"] == "scaling-resnet50-16"
    assert (last["spec"]["minReplicas"], last["spec"]["maxReplicas"]) == (16, 16)
    words = arguments(last)
    assert words[words.index("--global-batch") + 1] == str(16 * 64)
    assert words[-2:] == ["--data", "/mnt/data/imagenet"]


def test_the_same_command_goes_on_with_what_is_missing() -> None:
    cluster = Cluster()
    ebb(cluster, "bench scaling --gpus 4,8 --data imagenet")
    result = ebb(cluster, HEAD)
    assert (result.exit_code, cluster.sizes) == (0, [4, 8, 16])
    assert "16 GPUs: an epoch in 125.0 s, 3.20 times as fast" in result.stderr
    assert "(1 of 3)" not in result.stderr


def test_json_has_the_figures_and_writes_no_page_that_nobody_asked_for() -> None:
    result = ebb(Cluster(), f"{HEAD} -o json")
    found = json.loads(result.stdout)["scaling"]
    assert [(size["gpus"], size["speed_up"], size["efficiency"]) for size in found["sizes"]] == [
        (4, 1.0, 1.0), (8, 1.9048, 0.9524), (16, 3.2, 0.8),
    ]  # fmt: skip
    assert [size["usd"] for size in found["sizes"]] == [0.04, 0.08, 0.16]
    assert not list(Path().iterdir())


def test_a_size_that_fails_ends_it_and_the_page_keeps_the_others() -> None:
    cluster = Cluster(failing=8)
    result = ebb(cluster, HEAD)
    assert (result.exit_code, cluster.sizes) == (Exit.JOB_FAILED, [4, 8])
    assert "scaling-resnet50-8 failed: see `ebb logs scaling-resnet50-8`" in result.stderr
    assert "Larger sizes were not started." in result.stderr
    assert "missing" in Path("scaling-resnet50.html").read_text()
    again = ebb(cluster, HEAD)
    assert (again.exit_code, cluster.sizes) == (Exit.USAGE, [4, 8])
    assert "after `ebb delete scaling-resnet50-8` the same command runs it again" in again.stderr


def test_a_program_of_ones_own_is_told_the_size() -> None:
    Path("train.py").write_text("")
    cluster = Cluster()
    result = ebb(cluster, "bench scaling --gpus 4,8 --name mine -- python train.py --batch {gpus}00")
    assert result.exit_code == 0, result.output
    assert [arguments(job) for job in jobs(cluster)] == [["train.py", "--batch", f"{gpus}00"] for gpus in (4, 8)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("bench scaling --gpus 4,x --data d", "gpus '4,x' is no list of numbers: write it as 4,8,16,32,64."),
        ("bench scaling --gpus 4,0 --data d", "gpus 0 is not from 1 to 1024"),
        ("bench scaling --gpus 4,4 --data d", "gpus 4 is named twice"),
        ("bench scaling", "data is missing: resnet50 needs a folder of the data volume with train/<class>/<images>"),
        ("bench scaling --preset vgg --data d", "preset 'vgg' is unknown: use resnet50, efficientnet_b7, text_200m"),
        ("bench scaling --preset resnet50 --data d -- train.py", "preset 'resnet50' and a program are given"),
        ("bench scaling -- train.py", "name is missing: a program of your own needs one"),
        ("bench scaling --data d --page no/where.html", "page 'no/where.html' cannot be written"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is_sent(line: str, words: str) -> None:
    cluster = Cluster()
    result = ebb(cluster, line)
    assert (result.exit_code, cluster.sizes) == (Exit.USAGE, [])
    assert words in " ".join(result.stderr.split())


def test_too_few_machines_for_the_largest_are_found_before_the_smallest_is_sent() -> None:
    cluster = Cluster()
    result = ebb(cluster, "bench scaling --gpus 4,128 --data imagenet")
    assert (result.exit_code, cluster.sizes) == (Exit.USAGE, [])
    assert "128" in result.stderr


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metadata": {"annotations": {}}}, "is there and is another job"),
        ({"status": ended(1.0, 4, SUSPENDED)}, "was stopped: continue it with `ebb resume scaling-resnet50-4`"),
        ({"metadata": {"deletionTimestamp": "2026-11-21T13:00:00Z"}, "status": {}}, "is being deleted"),
    ],
)
def test_a_job_of_the_name_that_is_of_no_use_is_refused(change: dict[str, Any], words: str) -> None:
    cluster = Cluster()
    ebb(cluster, "bench scaling --gpus 4 --data imagenet")
    (job,) = jobs(cluster)
    metadata = {**job["metadata"], **change.get("metadata", {})}
    cluster.put({**job, **change, "metadata": metadata})
    result = ebb(cluster, HEAD)
    assert (result.exit_code, cluster.sizes) == (Exit.USAGE, [4])
    assert words in " ".join(result.stderr.split())
