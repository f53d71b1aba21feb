"""Settings of a stack: what is wrong is said in sentences, all at once, before anything is declared."""

import copy
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from infra import clouds, config

ROOT = Path(__file__).parent.parent.parent
JOB = {"apiVersion": "elastic.pytorch.org/v1alpha1", "kind": "ElasticJob", "metadata": {"name": "one"}, "spec": {"a": 1}}


def settings() -> dict[str, Any]:
    """The local stack as it is in the repository."""
    written = yaml.safe_load((ROOT / "Pulumi.local.yaml").read_text())["config"]
    return {key.removeprefix("ebb:"): value for key, value in written.items()}


def problems(values: dict[str, Any], root: Path = ROOT) -> list[str]:
    with pytest.raises(config.ConfigError) as caught:
        config.parse(values, root)
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


def changed(path: str, value: Any) -> dict[str, Any]:
    """The settings with one value set; the path is that of the messages."""
    values: Any = settings()
    here = values
    *steps, last = path.replace("[", ".[").split(".")
    for step in steps:
        here = here[int(step[1:-1])] if step.startswith("[") else here[step]
    here[last] = value
    return dict(values)


def test_the_local_stack_is_right() -> None:
    stack = config.parse(settings(), ROOT)
    assert [(group.name, group.zone, group.gpu, group.min, group.max) for group in stack.node_groups] == [
        (f"spot-t4-local-{zone}", f"local-{zone}", "T4", 0, 4) for zone in "abc"
    ]
    assert (stack.cloud, stack.manager.instance_type, stack.digits, stack.jobs) == ("local", "ebb.cpu", True, ())
    assert stack.settings.kubeconfig == ".ebb/boxes/ebb/kubeconfig"


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        pytest.param("cloud", "locall", "cloud: found 'locall'; allowed is local; did you mean 'local'?", id="cloud"),
        pytest.param("nodegroups", [], "nodegroups: unknown key; did you mean 'nodeGroups'?", id="misspelt key"),
        pytest.param("colour", 1, "colour: unknown key; allowed are cloud, digits, jobs, manager, nodeGroups, storage, zones",
                     id="unknown key"),
        pytest.param("zones", [], "zones: found []; tuple should have at least 1 item after validation, not 0", id="no zones"),
        pytest.param("nodeGroups[0].maxx", 2, "nodeGroups[0].maxx: unknown key; did you mean 'max'?", id="misspelt key inside"),
        pytest.param("nodeGroups[1].gpu", "T5", "nodeGroups[1].gpu: found 'T5'; allowed is T4", id="unknown GPU"),
        pytest.param("nodeGroups[1].min", 9, "nodeGroups[1].max: found 4, which is less than min (9): raise max or lower min",
                     id="min over max"),
        pytest.param("nodeGroups[1].min", -1, "nodeGroups[1].min: found -1; input should be greater than or equal to 0",
                     id="negative"),
        pytest.param("nodeGroups[1].max", "4", "nodeGroups[1].max: found '4'; input should be a valid integer", id="text"),
        pytest.param("nodeGroups[2].zone", "local-d",
                     "nodeGroups[2].zone: found 'local-d'; allowed are local-a, local-b, local-c; did you mean 'local-c'?",
                     id="unknown zone"),
        pytest.param("nodeGroups[2].capacityType", "cheap",
                     "nodeGroups[2].capacityType: found 'cheap'; input should be 'spot' or 'on-demand'", id="capacity"),
        pytest.param("nodeGroups[2].name", "Spot",
                     "nodeGroups[2].name: found 'Spot'; allowed are a-z, 0-9 and -, first a letter: machines are called after it",
                     id="name"),
        pytest.param("nodeGroups[2].name", "manager",
                     "nodeGroups[2].name: 'manager' is taken: names differ, and 'manager' is the platform's own", id="taken"),
        pytest.param("nodeGroups[2].gpu", None, "nodeGroups[2]: neither gpu nor instanceType is there: name one of them",
                     id="no machine"),
        pytest.param("nodeGroups[2].instanceType", "ebb.cpu",
                     "nodeGroups[2]: instanceType 'ebb.cpu' has no GPU, but gpu is 'T4': leave one of the two out",
                     id="contradiction"),
        pytest.param("manager.instanceType", "ebb.t4", "manager.instanceType: found 'ebb.t4'; allowed is ebb.cpu", id="manager"),
        pytest.param("storage.dataGiB", 0, "storage.dataGiB: found 0; input should be greater than or equal to 1", id="size"),
        pytest.param("local.kubeconfigg", "x", "local.kubeconfigg: unknown key; did you mean 'kubeconfig'?", id="in section"),
        pytest.param("local", {}, "local.kubeconfig: missing: add it to the stack's file", id="missing in cloud's section"),
        pytest.param("jobs", "x", "jobs: found 'x'; allowed is a list of job files and jobs", id="jobs no list"),
        pytest.param("jobs", ["no.yaml"],
                     "jobs[0]: cannot read 'no.yaml' (No such file or directory): give a path relative to the checkout",
                     id="no job file"),
        pytest.param("jobs", [{"kind": "Job"}],
                     "jobs[0]: found 'None Job'; allowed is elastic.pytorch.org/v1alpha1 ElasticJob with a spec "
                     "(see: ebb submit --dry-run)", id="not a job"),
        pytest.param("jobs", [{**JOB, "metadata": {}}],
                     "jobs[0].metadata.name: missing: a job of a stack needs a name, or every update would start it again",
                     id="no name"),
        pytest.param("jobs", [JOB, JOB], "jobs[1].metadata.name: 'one' is there twice: rename one", id="twice"),
    ],
)  # fmt: skip
def test_one_mistake_is_one_sentence(path: str, value: Any, sentence: str) -> None:
    assert problems(changed(path, value)) == [sentence]


def test_all_mistakes_are_reported_at_once() -> None:
    values = changed("nodeGroups[0].gpu", "H1000")
    values["nodeGroups"][1]["min"] = 7
    values["nodegroup"] = []
    values["local"]["noticeSecond"] = 3
    values["jobs"] = ["no.yaml"]
    assert [line.partition(":")[0] for line in problems(values)] == [
        *("nodeGroups[0].gpu", "nodeGroups[1].max", "nodegroup", "local.noticeSecond", "jobs[0]")
    ]


def test_a_missing_section_is_named() -> None:
    values = settings()
    del values["manager"]
    assert problems(values) == ["manager: missing: add it to the stack's file"]


def test_jobs_come_from_files_and_from_the_stack(tmp_path: Path) -> None:
    two = copy.deepcopy(JOB) | {"metadata": {"name": "two"}}
    (tmp_path / "jobs.yaml").write_text(yaml.safe_dump_all([JOB, two]))
    stack = config.parse(settings() | {"jobs": ["jobs.yaml", {**JOB, "metadata": {"name": "three"}}]}, tmp_path)
    assert [job["metadata"]["name"] for job in stack.jobs] == ["one", "two", "three"]


def test_a_gpu_may_be_spelt_in_any_case() -> None:
    assert config.parse(changed("nodeGroups[0].gpu", "t4"), ROOT).node_groups[0].gpu == "T4"


def test_settings_are_frozen() -> None:
    stack = config.parse(settings(), ROOT)
    with pytest.raises(ValueError, match="frozen"):
        stack.cloud = "other"


def test_load_reads_what_pulumi_hands_out() -> None:
    import json

    written = {f"ebb:{key}": value if isinstance(value, str) else json.dumps(value) for key, value in settings().items()}
    pulumi.runtime.set_all_config({**written, "aws:region": "nowhere"})
    try:
        assert config.load() == config.parse(settings(), ROOT)
    finally:
        pulumi.runtime.set_all_config({})


def test_a_config_error_is_shown_without_a_traceback() -> None:
    assert issubclass(config.ConfigError, pulumi.RunError)


def test_clouds_are_found_by_name() -> None:
    assert clouds.names() == ("local",)
    assert hasattr(clouds.module("local"), "make")
