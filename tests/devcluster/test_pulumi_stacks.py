"""Where the state of a real cloud's stack may be, and which commands are about one."""

import json
from pathlib import Path

import pytest

from devcluster.pulumi import stacks
from devcluster.pulumi.stacks import StateError


@pytest.mark.parametrize(
    ("arguments", "environment", "stack"),
    [
        pytest.param(["up", "--stack", "dev"], {}, "dev", id="option"),
        pytest.param(["up", "-s", "org/ebb/dev"], {}, "dev", id="in full"),
        pytest.param(["up", "--stack=dev"], {}, "dev", id="with ="),
        pytest.param(["stack", "init", "dev"], {}, "dev", id="init"),
        pytest.param(["stack", "init", "--secrets-provider=awskms://alias/k", "--stack", "dev"], {}, "dev", id="init, option"),
        pytest.param(["stack", "select", "dev"], {}, "dev", id="select"),
        pytest.param(["up"], {"PULUMI_STACK": "dev"}, "dev", id="variable"),
        pytest.param(["up"], {}, None, id="not said"),
        pytest.param(["stack", "ls"], {}, None, id="about none"),
    ],
)
def test_the_stack_of_a_command(arguments: list[str], environment: dict[str, str], stack: str | None) -> None:
    assert stacks.named_stack(arguments, environment) == stack


@pytest.mark.parametrize(
    ("content", "cloud"),
    [
        pytest.param("config:\n  ebb:cloud: aws\n", "aws", id="a cloud"),
        pytest.param("config:\n  ebb:cloud: local\n", "local", id="the box"),
        pytest.param("config: {}\n", "local", id="says nothing"),
        pytest.param("- [", "local", id="broken: the program reports it"),
        pytest.param(None, "local", id="no file"),
    ],
)
def test_the_cloud_of_a_stack(tmp_path: Path, content: str | None, cloud: str) -> None:
    if content is not None:
        (tmp_path / "Pulumi.x.yaml").write_text(content)
    assert stacks.cloud_of("x", tmp_path) == cloud


@pytest.mark.parametrize(
    ("arguments", "own"),
    [
        pytest.param(["login", "s3://state"], True, id="login"),
        pytest.param(["--logtostderr", "logout"], True, id="logout"),
        pytest.param(["up"], False, id="up"),
        pytest.param(["stack", "init", "login"], False, id="a stack of that name"),
        pytest.param([], False, id="nothing"),
    ],
)
def test_a_login_is_where_cloud_stacks_look_for_it(arguments: list[str], own: bool) -> None:
    assert stacks.users_own(arguments) is own


def test_without_a_login_nothing_starts(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"nothing says where its state goes.*pulumi login"):
        stacks.environment_for({"HOME": str(tmp_path)}, "/bin", "dev")


@pytest.mark.parametrize("where", ["variable", "login"])
def test_a_folder_needs_the_flag(tmp_path: Path, where: str) -> None:
    given = {"HOME": str(tmp_path)} | ({"PULUMI_BACKEND_URL": "file:///s"} if where == "variable" else {})
    (tmp_path / ".pulumi").mkdir()
    (tmp_path / ".pulumi" / "credentials.json").write_text(json.dumps({"current": "file:///s"}))
    with pytest.raises(StateError, match=r"folder of this machine.*EBB_FILE_STATE=1"):
        stacks.environment_for(given, "/bin", "dev")
    stacks.environment_for({**given, "EBB_FILE_STATE": "1"}, "/bin", "dev")


def test_an_object_store_gets_the_users_own_environment(tmp_path: Path) -> None:
    given = {"HOME": str(tmp_path), "PULUMI_BACKEND_URL": "s3://state", "AWS_PROFILE": "lab"}
    found = stacks.environment_for(given, "/engine:/bin", "dev")
    assert found["PULUMI_HOME"] == str(tmp_path / ".pulumi")
    assert found["PATH"] == "/engine:/bin"
    assert found["AWS_PROFILE"] == "lab"
    assert "PULUMI_CONFIG_PASSPHRASE" not in found, "our well-known passphrase would protect nothing"
    assert not [key for key in found if key.startswith("EBB_PULUMI")], "the stand-in is for the box"
