"""Every refusal of `ebb submit`, word for word: field, value, what is allowed, the fix. Nothing is sent."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from ebb.cli.app import app
from tests.cli.world import FakeKube, elastic_job, node_group, platform_map, session

EIGHT = node_group("a100", "local-a", gpuType="A100", gpusPerNode=8, cpu=96, memoryGiB=1152, max=11)
VOLUMES = "/mnt/data or /mnt/output or /opt/ebb/site-packages"
KEYS = "name, gpu, zone, capacity, image, shm, data, code, priority, queue, progress-regex, registry-secret, run-as, gpus, min, "
KEYS += "max, writable-root, max-cost, deadline, hold-on-failure, burn-in, env, env-file, secret, command"


def invoke(*words: str, kube: FakeKube | None = None) -> Result:
    return CliRunner().invoke(
        app, list(words), obj=session(kube or FakeKube(platform_map())), env={"COLUMNS": "80", "EBB_USER": "ada"}
    )


REFUSALS = {
    "unknown gpu": (["--gpu", "H100"], "gpu 'H100' is not on this platform: it has T4. Choose one of these with --gpu."),
    "min above max": (["--min", "3", "--max", "2"], "min 3 is more than max 2: lower --min or raise --max."),
    "min above gpus": (["--min", "2"], "min 2 is more than gpus 1: lower --min or raise --gpus."),
    "max below gpus": (["--gpus", "2", "--max", "1"], "max 1 is less than gpus 2: raise --max or lower --gpus."),
    "no gpu": (["--gpus", "0"], "gpus 0 is too few: a job has at least 1 GPU."),
    "unknown zone": (
        ["--zone", "local-z"],
        "zone 'local-z': T4 as spot is in local-a, local-b and local-c. Choose one of these, or leave --zone out and the "
        "platform picks one.",
    ),
    "no on-demand": (
        ["--on-demand"],
        "capacity 'on-demand': this platform has T4 as spot only. Leave the capacity out, or add a node group to the stack and "
        "run `pulumi up`.",
    ),
    "more than a zone": (
        ["--gpus", "5"],
        "gpus 5 is more than one zone can hold, and a job stays in one zone: T4 as spot, at most: local-a 4, local-b 4, "
        "local-c 4. Use --gpus 4 or fewer, or raise the node group's max in the stack.",
    ),
    "bad name": (
        ["--name", "My_Job"],
        "name 'My_Job' is not usable: use lower-case letters, digits and '-'; start with a letter, do not end with '-'.",
    ),
    "long name": (
        ["--name", "a" * 60, "--max", "4"],
        f"name '{'a' * 60}' is too long: its last worker would be named '{'a' * 60}-worker-0', 69 characters of at most 63. "
        "Shorten it by 6.",
    ),
    "name too long for its workers": (
        ["--name", "a" * 54, "--gpu", "A100", "--gpus", "8", "--max", "88"],
        f"name '{'a' * 54}' is too long: its last worker would be named '{'a' * 54}-worker-10', 64 characters of at most 63. "
        "Shorten it by 1.",
    ),
    "not whole machines": (
        ["--gpu", "A100", "--gpus", "12"],
        "gpus 12: not a whole number of machines; those with A100 hold 8 GPUs each. Use multiples of 8.",
    ),
    "part of a machine that grows": (
        ["--gpu", "A100", "--gpus", "2", "--max", "4"],
        "gpus 2, max 4: not a whole number of machines; those with A100 hold 8 GPUs each. Use multiples of 8.",
    ),
    "env without value": (["--env", "LR"], "env 'LR' has no value: use NAME=VALUE, as in --env LR=0.1."),
    "env with a bad name": (
        ["--env", "L-R=1"],
        "env 'L-R' is not a variable's name: use letters, digits and '_', as in --env LR=0.1.",
    ),
    "env of ours": (
        ["--env", "EBB_JOB=x"],
        "env 'EBB_JOB' is taken: the platform sets the names that start with EBB_. Choose another name.",
    ),
    "shm is not memory": (["--shm", "lots"], "shm 'lots' is not an amount of memory: use for example 512Mi or 1Gi."),
    "shm above memory": (
        ["--shm", "64Gi"],
        "shm '64Gi' does not fit: /dev/shm is part of the worker's memory of 12288Mi. Use 1Mi to 12288Mi.",
    ),
    "data elsewhere": (
        ["--data", "/home/me/data"],
        f"data '/home/me/data' is on no volume of this platform: use a path under {VOLUMES}.",
    ),
    "no spot-then-on-demand": (
        ["--spot-then-on-demand"],
        "capacity 'spot-then-on-demand': this platform has T4 as spot only. Leave the capacity out, or add a node group to the "
        "stack and run `pulumi up`.",
    ),
    "two kinds of machines": (
        ["--spot-then-on-demand", "--spot"],
        "--spot-then-on-demand says what --spot and --on-demand say: give one of the three.",
    ),
    "unknown priority": (
        ["--priority", "system"],
        "priority 'system' is unknown: use job (the default), or elastic (it yields to all others).",
    ),
    "no queue": (
        ["--queue", "My/Queue"],
        "queue 'My/Queue' is no name of a queue: give that of a LocalQueue of Kueue, in lower-case letters, digits and '-', as "
        "`kubectl get localqueues` shows it; without --queue the platform's own queue decides.",
    ),
    "no money": (["--max-cost", "0"], "max-cost 0 is not more than 0: give the most that the job may cost, in USD."),
    "no length of time": (
        ["--hold-on-failure", "long"],
        "hold-on-failure 'long' is not a length of time: use for example 90s, 15m or 2h.",
    ),
    "held too long": (
        ["--hold-on-failure", "5h"],
        "hold-on-failure 18000 s is not from 60 s to 4 h: a machine that is held costs as one that trains. Give for example 30m.",
    ),
    "held too briefly": (
        ["--hold-on-failure", "59"],
        "hold-on-failure 59 s is not from 60 s to 4 h: a machine that is held costs as one that trains. Give for example 30m.",
    ),
    "tested for no time": (["--burn-in", "now"], "burn-in 'now' is not a length of time: use for example 90s, 15m or 2h."),
    "tested too long": (
        ["--burn-in", "2h"],
        "burn-in 7200 s is not from 10 s to 1 h: each machine is tested for so long before it begins work, and costs as one that "
        "trains. Give for example 60s.",
    ),
    "tested too briefly": (
        ["--burn-in", "9"],
        "burn-in 9 s is not from 10 s to 1 h: each machine is tested for so long before it begins work, and costs as one that "
        "trains. Give for example 60s.",
    ),
    "no deadline": (["--deadline", "soon"], "deadline 'soon' is not a time: use for example 12h, or 2026-12-01T18:00Z."),
    "no code": (["--code", "nowhere"], "code 'nowhere' is not a folder: name the one that holds your program, as in --code ."),
    "no env file": (
        ["--env-file", "nowhere"],
        "env-file 'nowhere' cannot be read: No such file or directory. Give a file with lines such as LR=0.1.",
    ),
    "data that climbs out": (
        ["--data", "../../etc"],
        f"data '../../etc' is on no volume of this platform: use a path under {VOLUMES}.",
    ),
}


@pytest.mark.parametrize(("flags", "sentence"), REFUSALS.values(), ids=REFUSALS)
def test_refusals(flags: list[str], sentence: str) -> None:
    groups = (EIGHT,) if "A100" in flags else ()
    gpu = [] if "--gpu" in flags or not groups else ["--gpu", "T4"]
    kube = FakeKube(platform_map(*groups))
    name = [] if "--name" in flags else ["--name", "digits"]
    code = [] if "--code" in flags else ["--no-code"]
    result = invoke("submit", *name, *gpu, *code, *flags, "--", "train.py", kube=kube)
    assert (result.exit_code, result.stderr) == (2, f"ebb: {sentence}\n")
    assert not [sent for sent in kube.sent if sent[0] != "GET"]


def test_nothing_to_run() -> None:
    result = invoke("submit", "--", "python")
    assert (result.exit_code, result.stderr) == (
        2, "ebb: nothing to run: give the program after --, as in `-- python train.py --lr 0.1` or `-- -m trainer`.\n"
    )  # fmt: skip


def test_a_program_on_the_command_line() -> None:
    result = invoke("submit", "--", "python", "-c", "print(1)")
    sentence = "program '-c' is text on the command line, and every process needs a file: write it to a script."
    assert (result.exit_code, result.stderr) == (2, f"ebb: {sentence}\n")


def test_several_gpu_types_need_a_choice() -> None:
    result = invoke("submit", "--no-code", "--", "train.py", kube=FakeKube(platform_map(EIGHT)))
    sentence = "gpu is missing, and this platform has several: choose one of T4 and A100 with --gpu."
    assert (result.exit_code, result.stderr) == (2, f"ebb: {sentence}\n")


FILES = {
    "unknown key": ("gpu_type: T4", f"key 'gpu_type' in the job file is unknown: use {KEYS}."),
    "a word for a number": ("gpus: two\ncommand: x.py", "gpus 'two' is not a whole number: write it as in `gpus: 2`."),
    "capacity": (
        "capacity: cheap\ncommand: x.py",
        "capacity 'cheap' is unknown: use spot, on-demand, spot-then-on-demand, capacity-block or flex-start.",
    ),
    "env as a list": ("env: [A]\ncommand: x.py", "env ['A'] is not a mapping: write it as in `env: {LR: 0.1}`."),
    "a word for money": (
        "max-cost: much\ncommand: x.py",
        "max-cost 'much' is not an amount of USD: write it as in `max-cost: 40`.",
    ),
    "open quote": (
        "command: \"python 'x\"",
        "command \"python 'x\" cannot be split into words (No closing quotation): close its quotes, or write a list.",
    ),
    "another kind": (
        "apiVersion: batch/v1\nkind: Job",
        "kind 'Job' of 'batch/v1' cannot be submitted: use ElasticJob of 'elastic.pytorch.org/v1alpha1', or a short job file "
        f"with the keys {KEYS}.",
    ),
    "no name": (
        "apiVersion: elastic.pytorch.org/v1alpha1\nkind: ElasticJob",
        "metadata.name is missing: an ElasticJob file must name its job.",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), FILES.values(), ids=FILES)
def test_bad_job_files(text: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    result = invoke("submit", "-f", str(file))
    assert (result.exit_code, result.stderr) == (2, f"ebb: {sentence}\n")


def test_a_missing_job_file() -> None:
    result = invoke("submit", "-f", "nowhere.yaml")
    assert (result.exit_code, result.stderr) == (
        2, "ebb: file 'nowhere.yaml' cannot be read: No such file or directory. Give a job file with -f.\n"
    )  # fmt: skip


def test_flags_beside_a_whole_job_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(elastic_job()))
    result = invoke("submit", "-f", str(file), "--gpus", "2")
    assert (result.exit_code, result.stderr) == (
        2, "ebb: gpus: a file of kind ElasticJob is sent as it is. Change it in the file.\n"
    )  # fmt: skip
