"""What `ebb submit` can say beside the program: limits, priority, both kinds of machines, variables from files, the code; and
what it shows and asks before it sends."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from ebb.cli.app import app
from ebb.cli.terminal import is_interactive
from ebb.cli.verbs import submit as verb
from ebb.client.submission.jobfile import read_file, request_of
from ebb.kube import Object
from tests.cli.world import NS, FakeKube, node_group, platform_map, session, worker_pod
from tests.pod_security import violations

ON_DEMAND = node_group("od-t4", "local-a", capacityType="on-demand", spotDiscount=0, taints=[], provisionSeconds=120)


def invoke(*words: str, kube: FakeKube | None = None, answer: str | None = None, user: str = "ada") -> Result:
    """The user is part of the manifest."""
    cluster = kube or FakeKube(platform_map())
    return CliRunner().invoke(app, list(words), obj=session(cluster), env={"COLUMNS": "80", "EBB_USER": user}, input=answer)


def manifest(*words: str, kube: FakeKube | None = None, user: str = "ada") -> Object:
    result = invoke("submit", "--name", "digits", *words, "--no-code", "--dry-run", "--", "train.py", kube=kube, user=user)
    assert result.exit_code == 0, result.stderr
    body: Object = yaml.safe_load(result.stdout)
    assert violations(pod_of(body)) == []
    return body


def pod_of(body: Object) -> Object:
    pod: Object = body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    return pod


def node(name: str, group: str, gpus: int = 1) -> Object:
    """A machine as its Node shows it."""
    labels = {"ebb.dev/node-group": group, "topology.kubernetes.io/zone": "local-a", "ebb.dev/gpu-type": "T4"}
    labels["ebb.dev/capacity-type"] = "spot"
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "namespace": None, "labels": labels}, "spec": {},
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": [{"type": "Ready", "status": "True"}]},
    }  # fmt: skip


def test_limits_that_outlive_the_laptop() -> None:
    spec = manifest("--max-cost", "40", "--deadline", "2026-12-01T18:00+02:00")["spec"]
    assert (spec["budget"], spec["deadline"]) == ({"maxUSD": 40.0}, "2026-12-01T16:00:00Z")


def test_a_machine_that_is_held_on_failure() -> None:
    assert manifest("--hold-on-failure", "30m")["spec"]["holdOnFailureSeconds"] == 1800
    assert "holdOnFailureSeconds" not in manifest()["spec"]


def test_machines_that_are_tested_first() -> None:
    assert manifest("--burn-in", "2m")["spec"]["burnInSeconds"] == 120
    assert "burnInSeconds" not in manifest()["spec"]


def test_both_kinds_of_machines() -> None:
    """The pod asks for neither kind: the controller does, when it knows which is to be had."""
    body = manifest("--spot-then-on-demand", kube=FakeKube(platform_map(ON_DEMAND)))
    assert body["spec"]["placement"]["capacity"] == "spot-then-on-demand"
    assert pod_of(body)["nodeSelector"] == {"ebb.dev/gpu-type": "T4"}
    assert {item["key"] for item in pod_of(body)["tolerations"]} == {"nvidia.com/gpu", "ebb.dev/capacity-type"}


@pytest.mark.parametrize(("said", "found"), [([], "ebb-job"), (["--priority", "elastic"], "ebb-elastic")])
def test_priorities_by_their_short_names(said: list[str], found: str) -> None:
    assert pod_of(manifest(*said))["priorityClassName"] == found


@pytest.mark.parametrize(("user", "label"), [("ada@example.org", "ada-example.org"), ("Ada L.", "Ada-L"), ("a" * 70, "a" * 63)])
def test_who_submits_is_a_label_and_named_in_the_record(user: str, label: str) -> None:
    metadata = manifest(user=user)["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == ({"ebb.dev/user": label}, {"ebb.dev/submitted-by": user})


def test_variables_from_files_give_way_to_what_is_nearer(tmp_path: Path) -> None:
    (tmp_path / "base.env").write_text("# a comment\n\nA=file\nB=file\nC=file\nD=file\n")
    (tmp_path / "mine.env").write_text("export C='mine = 1'\nD=mine\n")
    job = tmp_path / "job.yaml"
    job.write_text("env-file: base.env\nenv: {B: job}\ncommand: train.py\n")
    flags: dict[str, Any] = {"env": ["D=flag"], "env-file": str(tmp_path / "mine.env")}
    found = request_of(read_file(job), flags, (), "ab12").env
    assert found == {"A": "file", "B": "job", "C": "mine = 1", "D": "flag"}


def test_a_line_without_a_value_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.env").write_text("A=1\nB\n")
    result = invoke("submit", "--env-file", str(tmp_path / "x.env"), "--", "train.py")
    assert result.exit_code == 2
    assert result.stderr.endswith("line 2: 'B' has no value: write NAME=VALUE.\n")


@pytest.mark.parametrize("text", ["2026-12-01T18:00:00Z", "2026-12-01 18:00:00+00:00"])
def test_yaml_makes_moments_of_some_texts(text: str, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(f"deadline: {text}\nmax-cost: 1.5\ncommand: train.py\n")
    found = request_of(read_file(job), {}, (), "ab12")
    assert (found.deadline, found.max_cost) == ("2026-12-01T18:00:00Z", 1.5)


def test_code_of_a_job_file_is_beside_it(tmp_path: Path) -> None:
    """What would travel is packed for --dry-run too: its version is in the manifest."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print(1)")
    job = tmp_path / "job.yaml"
    job.write_text("name: exp1\ncode: src\ncommand: python train.py\n")
    kube = FakeKube(platform_map())
    result = invoke("submit", "-f", str(job), "--dry-run", kube=kube)
    body = yaml.safe_load(result.stdout)
    assert {verb for verb, _ in kube.sent} == {"GET"}
    version = body["metadata"]["annotations"]["ebb.dev/code"]
    assert pod_of(body)["volumes"][-1] == {"name": "ebb-code", "configMap": {"name": "exp1-code"}}
    sent = invoke("submit", "-f", str(job), kube=kube)
    assert sent.exit_code == 0, sent.stderr
    assert f"{tmp_path}/src:1file,114Bpacked,version{version[:12]}" in "".join(sent.stdout.split())  # lines are wrapped
    assert [path.rsplit("/", 1)[-1] for verb, path in kube.sent if verb != "GET"] == ["configmaps", "elasticjobs", "exp1-code"]


FREE = [node("m1", "spot-t4-local-a"), node("m2", "spot-t4-local-a")]
TAKEN = {**worker_pod(0, job="other", node="m1"), "spec": {
    "nodeName": "m1", "containers": [{"name": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
}}  # fmt: skip
OUTLOOKS = {
    "free": (["--gpus", "2"], [*FREE], "fits now: 2 machines are free in local-a", "no limit"),
    "one is taken": (["--gpus", "2"], [*FREE, TAKEN], "needs 1 machine that is booted in about 5 min", "no limit"),
    "nothing is there": (["--gpus", "2"], [], "needs 2 machines that are booted in about 5 min", "no limit"),
    "a budget": (["--max-cost", "3"], [*FREE], "fits now: 1 machine is free in local-a", "$3.00"),
    "budget before deadline": (["--max-cost", "3", "--deadline", "1000h"], [*FREE], "fits now", "$3.00, until"),
    "deadline before budget": (["--max-cost", "3", "--deadline", "10h"], [*FREE], "fits now", "$1.58, until"),
}


@pytest.mark.parametrize(("words", "objects", "now", "most"), OUTLOOKS.values(), ids=OUTLOOKS)
def test_what_it_would_meet_and_cost_is_shown(words: list[str], objects: list[Object], now: str, most: str) -> None:
    result = invoke("submit", *words, "--no-code", "--", "train.py", kube=FakeKube(platform_map(), *objects))
    assert result.exit_code == 0, result.stderr
    assert f"  now       {now}" in result.stdout
    assert f"  at most   {most}" in result.stdout


@pytest.mark.parametrize(
    ("answer", "words", "sent"),
    [("y\n", [], True), ("\n", [], True), ("n\n", [], False), (None, ["--yes"], True), (None, ["-y"], True)],
    ids=["yes", "enter", "no", "--yes", "-y"],
)
def test_a_terminal_is_asked(answer: str | None, words: list[str], sent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "is_interactive", lambda: True)
    kube = FakeKube(platform_map())
    result = invoke("submit", *words, "--no-code", "--", "train.py", kube=kube, answer=answer)
    assert result.exit_code == (0 if sent else 1)
    posted = [path for verb, path in kube.sent if verb == "POST"]
    assert posted == ([f"/apis/elastic.pytorch.org/v1alpha1/namespaces/{NS}/elasticjobs"] if sent else [])
    assert ("Nothing was sent." in result.stderr) is not sent


def test_a_pipe_is_not_asked() -> None:
    assert not is_interactive() or pytest.skip("a person runs this test")
    assert invoke("submit", "--no-code", "--", "train.py").exit_code == 0
