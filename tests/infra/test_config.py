"""Settings of a stack: read from files and from the engine; what is wrong is said all at once, before anything is declared."""

import copy
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from pydantic import BaseModel

from infra import clouds, config
from infra.cloud import Cloud
from infra.config.salvage import models
from tests.infra.cases import CASES
from tests.infra.stacks import GONE, JOB, ROOT, STACKS, changed, problems, settings

FOLDER = Path(__file__).parent
TABLE = [
    (path.relative_to(FOLDER).with_suffix("").as_posix(), one)
    for path in (*sorted(FOLDER.rglob("malformed.yaml")), *sorted(FOLDER.rglob("malformed/*.yaml")))
    for one in yaml.safe_load(path.read_text())
]


@pytest.mark.parametrize("stack", STACKS)
def test_the_stacks_of_the_repository_are_right(stack: str) -> None:
    assert config.read(stack).cloud in clouds.names()


def test_a_file_that_pulumi_wrote_again_is_read_as_before(tmp_path: Path) -> None:
    """`pulumi stack init` adds its secrets provider and writes plain values as texts: ebb:digits: "true"."""
    document = yaml.safe_load((ROOT / "Pulumi.local.yaml").read_text())
    assert document["config"]["ebb:digits"] is True
    document["config"]["ebb:digits"] = "true"
    document["config"]["ebb:jobs"] = []
    (tmp_path / "Pulumi.local.yaml").write_text(yaml.safe_dump({"encryptionsalt": "v1:...", **document}))
    assert config.read("local", tmp_path).digits is True


def test_the_local_stack() -> None:
    stack = config.read("local")
    assert [dict(line.names(stack.zones)) for line in stack.node_groups] == [
        {f"local-{zone}": f"spot-t4-local-{zone}" for zone in "abc"}
    ]
    assert (stack.manager.instance_type, stack.digits, stack.jobs, stack.datasets) == ("ebb.cpu", True, (), ())
    assert stack.settings.kubeconfig == ".ebb/boxes/ebb/kubeconfig"


@pytest.mark.parametrize(("part", "case"), TABLE, ids=[f"{part}: {case['id']}" for part, case in TABLE])
def test_a_malformed_stack_is_told_what_is_wrong(part: str, case: dict[str, Any]) -> None:
    values = settings(case["stack"])
    for path, value in case["change"].items():
        changed(values, path, GONE if value == "<gone>" else value)
    assert problems(values) == [said.replace("<clouds>", ", ".join(clouds.names())) for said in case["says"]], part


def test_the_table_has_no_case_twice() -> None:
    cases = [json.dumps([one["stack"], one["change"]]) for _, one in TABLE]
    assert len(cases) == len(set(cases)) >= 40


def test_whatever_is_in_a_file_it_is_told_and_nothing_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three places of a stack at a time are replaced by something else, or taken out."""
    # The stacks' job files are whole each time, and reading them as YAML would take most of the time.
    read = cache(lambda text: list(yaml.load_all(text, yaml.SafeLoader)))
    monkeypatch.setattr(yaml, "safe_load_all", lambda text: copy.deepcopy(read(text)))
    chance = random.Random(4)
    junk: tuple[Any, ...] = (None, 7, -1, 2.5, True, "", "x", "é/ü", [], [None], {}, {"x": 1}, GONE)
    told = []
    for turn in range(100 * len(STACKS)):
        values = settings(STACKS[turn % len(STACKS)])
        for _ in range(3):
            _break(values, chance, junk)
        try:
            config.parse(values, ROOT)
        except config.ConfigError as error:
            told.append(str(error).splitlines()[1:])
    assert len(told) > 80 * len(STACKS)
    assert all(told)


def _break(node: Any, chance: random.Random, junk: tuple[Any, ...]) -> None:
    """Walk down to some place, and put something else there."""
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = chance.choice(keys)
        if not isinstance(node[key], dict | list) or not node[key] or chance.random() < 0.2:
            break
        node = node[key]
    thing = chance.choice(junk)
    if thing is GONE:
        del node[key]
    else:
        node[key] = copy.deepcopy(thing)


def test_an_alias_of_yaml_is_mended_in_one_place_only() -> None:
    values = settings() | yaml.safe_load("{manager: &same {x: 1}, storage: *same}")
    assert [line.partition(": ")[0] for line in problems(values)] == [
        "manager.zone", "manager.instanceType", "manager.x", "storage.x"
    ]  # fmt: skip


def test_jobs_come_from_files_and_from_the_stack(tmp_path: Path) -> None:
    two = copy.deepcopy(JOB) | {"metadata": {"name": "two"}}
    (tmp_path / "jobs.yaml").write_text(yaml.safe_dump_all([JOB, two]))
    stack = config.parse(settings() | {"jobs": ["jobs.yaml", {**JOB, "metadata": {"name": "three"}}]}, tmp_path)
    assert [job["metadata"]["name"] for job in stack.jobs] == ["one", "two", "three"]


def test_a_job_file_that_is_not_yaml_is_named(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text("{")
    assert [line.partition(": ")[0] for line in problems(settings() | {"jobs": ["jobs.yaml"]}, tmp_path)] == ["jobs[0]"]


def test_settings_are_frozen() -> None:
    stack = config.read("local")
    with pytest.raises(ValueError, match="frozen"):
        stack.cloud = "other"


@pytest.mark.parametrize("stack", STACKS)
def test_load_reads_what_pulumi_hands_out(stack: str) -> None:
    written = {f"ebb:{key}": value if isinstance(value, str) else json.dumps(value) for key, value in settings(stack).items()}
    others = {"other:region": "nowhere", "pulumi:disable-default-providers": '["other"]'}
    pulumi.runtime.set_all_config(written | others)
    try:
        assert config.load() == config.read(stack)
    finally:
        pulumi.runtime.set_all_config({})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(None, "No such file or directory: stacks with a file are other", id="none"),
        pytest.param("{", " is not YAML: ", id="no YAML"),
        pytest.param("a: 1", ": there is no section `config`", id="no section"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str | None, says: str) -> None:
    (tmp_path / "Pulumi.other.yaml").touch()
    path = tmp_path / "Pulumi.one.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(config.ConfigError) as caught:
        config.read("one", tmp_path)
    assert str(caught.value).startswith(str(path))
    assert says in str(caught.value)


def test_a_webhook_has_to_be_encrypted() -> None:
    address = "https://hooks.slack.com/services/x"
    assert config.parse(settings() | {"webhook": address}, ROOT, encrypted=["webhook"]).webhook == address
    with pytest.raises(config.ConfigError, match=r"webhook: is in the stack's file.*pulumi config set --secret ebb:webhook"):
        config.parse(settings() | {"webhook": address}, ROOT)
    with pytest.raises(config.ConfigError, match=r"webhook.*https://"):
        config.parse(settings() | {"webhook": "hooks.slack.com"}, ROOT, encrypted=["webhook"])


def test_what_is_encrypted_is_left_to_the_engine(tmp_path: Path) -> None:
    values = {f"ebb:{key}": value for key, value in settings().items()}
    (tmp_path / "Pulumi.one.yaml").write_text(yaml.safe_dump({"config": values | {"ebb:webhook": {"secure": "v1:abc"}}}))
    assert config.read("one", tmp_path).webhook is None


@pytest.mark.parametrize("name", ["Dev", "my_stack", "a-name-that-is-much-too-long"])
def test_a_stacks_name_is_part_of_other_names(name: str) -> None:
    with pytest.raises(config.ConfigError, match="the stack's name: found"):
        config.parse(settings(), ROOT, stack=name)


def test_a_config_error_is_shown_without_a_traceback() -> None:
    assert issubclass(config.ConfigError, pulumi.RunError)


def test_clouds_are_found_by_name() -> None:
    folder = ROOT / "infra" / "clouds"
    there = {path.name.removesuffix(".py") for path in folder.iterdir() if not path.name.startswith("__")}
    assert set(clouds.names()) == there >= {"local", *(case.cloud for case in CASES)}
    assert all(Cloud in type(clouds.named(name)).__mro__ for name in clouds.names())


def _sections(model: type[BaseModel]) -> set[type[BaseModel]]:
    """The model and those in it."""
    inner = {one for field in model.model_fields.values() for one in models(field.annotation)}
    return {model}.union(*map(_sections, inner))


SECTIONS = sorted(
    _sections(config.Stack).union(
        *(_sections(clouds.named(cloud).Settings) for cloud in clouds.names()),
        *(_sections(clouds.named(case.cloud).GroupSettings) for case in CASES),
    ),
    key=str,
)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda one: f"{one.__module__.split('.')[-2]}.{one.__name__}")
def test_every_key_is_described_and_every_needed_one_has_an_example(section: type[BaseModel]) -> None:
    """Editors show the sentences; the examples stand in for what is missing, so that the rest is still checked."""
    for name, field in section.model_fields.items():
        if not str(field.alias).startswith("<"):
            assert (field.description or "").endswith("."), name
            assert not field.is_required() or field.examples or any(models(field.annotation)), name
