"""`ebb platform`, `--platform` before and after a verb, and what is shown of all platforms at once."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ebb.cli.app import app
from ebb.cli.options import Session
from ebb.client.platform import platforms
from ebb.kube import Kube, Object
from tests.cli.world import FakeKube, elastic_job, platform_map


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("EBB_KUBECONFIG", "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "EBB_PLATFORM", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("EBB_HOME", str(tmp_path / ".ebb"))
    for name in ("aws", "gcp", "down"):
        (tmp_path / name).write_text("")
    return tmp_path


def cloud(name: str, region: str) -> Object:
    made = platform_map()
    content = json.loads(made["data"]["platform.json"]) | {"cloud": name, "region": region, "stack": f"{name}-stack"}
    return {**made, "data": {"schema": "1", "platform.json": json.dumps(content)}}


@pytest.fixture
def world() -> dict[str, FakeKube]:
    """Two platforms that answer, and one that does not."""
    found = {"aws": FakeKube(cloud("aws", "us-west-2"), elastic_job("digits")), "gcp": FakeKube(cloud("gcp", "us-central1"))}
    found["down"] = FakeKube()
    found["down"].broken = True
    return found


def invoke(world: dict[str, FakeKube], *words: str, **environment: str) -> Result:
    @asynccontextmanager
    async def connect(kubeconfig: str | None, context: str | None) -> AsyncIterator[Kube]:
        assert kubeconfig is not None
        yield world[Path(kubeconfig).name]

    return CliRunner().invoke(app, list(words), obj=Session(connect=connect), env={"COLUMNS": "80", **environment})


def add_all(world: dict[str, FakeKube], home: Path) -> None:
    for name in ("aws", "gcp", "down"):
        assert invoke(world, "platform", "add", name, "--kubeconfig", str(home / name), "--no-check").exit_code == 0


def test_add_asks_it_and_says_what_it_is(world: dict[str, FakeKube], home: Path) -> None:
    result = invoke(world, "platform", "add", "aws", "--kubeconfig", str(home / "aws"))
    assert (result.exit_code, result.stdout) == (0, "aws is added: aws us-west-2, stack aws-stack, and is the current one.\n")
    result = invoke(world, "platform", "add", "down", "--kubeconfig", str(home / "down"))
    assert result.exit_code == 3
    assert result.stderr.startswith("Nothing was added; --no-check adds it anyway.\nebb: no answer")
    assert [each.name for each in platforms.known()] == ["aws"]


def test_list_use_and_remove(world: dict[str, FakeKube], home: Path) -> None:
    assert "No platforms yet" in invoke(world, "platform", "list").stderr
    add_all(world, home)
    result = invoke(world, "platform", "use", "gcp")
    assert result.stdout == "gcp is the current platform.\n"
    result = invoke(world, "platform", "list")
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["NAME", "CLOUD", "REGION", "ANSWERS"],
        ["aws", "aws", "us-west-2", "yes"],
        ["down", "-", "-", "no"],
        ["*", "gcp", "gcp", "us-central1", "yes"],
    ]
    assert result.stderr == "down: no answer\n"
    listed = json.loads(invoke(world, "platform", "list", "-o", "json").stdout)["platforms"]
    assert listed[0] == {
        "name": "aws", "current": False, "kubeconfig": str(home / "aws"), "context": "", "cloud": "aws", "region": "us-west-2",
        "stack": "aws-stack", "reachable": True, "trouble": "",
    }  # fmt: skip
    result = invoke(world, "platform", "remove", "gcp")
    assert result.stdout == "gcp is forgotten. No platform is current now: ebb platform use NAME\n"
    assert invoke(world, "platform", "use", "gcp").exit_code == 4


@pytest.mark.parametrize(
    ("words", "environment", "asked"),
    [
        pytest.param(["list"], {}, "aws", id="the-current-one"),
        pytest.param(["--platform", "gcp", "list"], {}, "gcp", id="before-the-verb"),
        pytest.param(["list", "--platform", "gcp"], {}, "gcp", id="after-the-verb"),
        pytest.param(["--platform", "aws", "list", "--platform", "gcp"], {}, "gcp", id="after-wins"),
        pytest.param(["list"], {"EBB_PLATFORM": "gcp"}, "gcp", id="by-the-environment"),
        pytest.param(["list", "--platform", "aws"], {"EBB_PLATFORM": "gcp"}, "aws", id="the-flag-wins"),
    ],
)
def test_a_verb_goes_to_the_platform(
    words: list[str], environment: dict[str, str], asked: str, world: dict[str, FakeKube], home: Path
) -> None:
    add_all(world, home)
    result = invoke(world, *words, **environment)
    assert result.exit_code == 0, result.stderr
    assert [name for name, kube in world.items() if kube.sent] == [asked]


def test_all_are_shown_and_one_that_is_down_is_a_note(world: dict[str, FakeKube], home: Path) -> None:
    add_all(world, home)
    result = invoke(world, "list", "--platform", "all")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "aws (aws us-west-2)"
    assert lines[2].split()[0] == "digits"
    assert lines[3] == "gcp (gcp us-central1)"
    assert "No jobs in elastic-job yet" in result.stderr
    assert result.stderr.endswith("down: no answer\n")
    found = json.loads(invoke(world, "list", "--platform", "all", "-o", "json").stdout)["platforms"]
    assert [
        (each["platform"], each["cloud"], [job["name"] for job in each.get("jobs", [])], each["trouble"]) for each in found
    ] == [
        ("aws", "aws", ["digits"], ""),
        ("down", "", [], "no answer"),
        ("gcp", "gcp", [], ""),
    ]


def test_gpus_of_all(world: dict[str, FakeKube], home: Path) -> None:
    add_all(world, home)
    result = invoke(world, "gpus", **{"EBB_PLATFORM": "all"})
    assert result.exit_code == 0, result.stderr
    assert [line for line in result.stdout.splitlines() if "(" in line[:6]] == ["aws (aws us-west-2)", "gcp (gcp us-central1)"]
    found = json.loads(invoke(world, "gpus", "--platform", "all", "-o", "json").stdout)["platforms"]
    assert [(each["platform"], len(each.get("groups", []))) for each in found] == [("aws", 3), ("down", 0), ("gcp", 3)]


def test_where_none_answers_it_fails(world: dict[str, FakeKube], home: Path) -> None:
    result = invoke(world, "list", "--platform", "all")
    assert (result.exit_code, result.stderr.split(":")[1]) == (3, " no platform is known by a name yet")
    invoke(world, "platform", "add", "down", "--kubeconfig", str(home / "down"), "--no-check")
    result = invoke(world, "list", "--platform", "all")
    assert result.exit_code == 3
    assert "none of the platforms answers" in result.stderr


def test_all_is_refused_by_what_changes_something(world: dict[str, FakeKube], home: Path) -> None:
    add_all(world, home)
    result = invoke(world, "delete", "digits", "--platform", "all")
    assert (result.exit_code, result.stderr.startswith("ebb: platform 'all' is for `ebb list` and `ebb gpus` only")) == (2, True)
