"""Requests: how they are made, what comes back, and what is said when they fail."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from infra.clouds.azure.rest import NO_LOGIN, Arm, NoAccess, Refused, cli_token
from infra.commands import CannotLook
from tests.infra.azure.fake_arm import FakeArm
from tests.infra.azure.stacks import SUBSCRIPTION


def test_a_request_carries_the_token_and_the_version() -> None:
    with FakeArm({("GET", "/locations"): {"value": [{"name": "westus2"}]}}) as azure:
        assert azure.arm().get("/locations", "2022-12-01") == {"value": [{"name": "westus2"}]}
        assert azure.seen == [("GET", "/locations", {"api-version": "2022-12-01"}, None)]
        assert azure.tokens == {"Bearer token"}


def test_all_pages_are_one_list() -> None:
    def page(query: dict[str, str], body: Any) -> dict[str, Any]:
        if "after" in query:
            return {"value": [{"name": "b"}]}
        return {"value": [{"name": "a"}], "nextLink": f"{azure.url}/subscriptions/{SUBSCRIPTION}/resources?after=1"}

    with FakeArm({("GET", "/resources"): page}) as azure:
        found = azure.arm().all("/resources", "2021-04-01", **{"$filter": "tagName eq 'x'"})
        assert [one["name"] for one in found] == ["a", "b"]
        assert azure.seen[0][2]["$filter"] == "tagName eq 'x'"


def test_a_refusal_has_azures_word_and_says_whether_it_is_a_right_or_absence() -> None:
    with FakeArm({("GET", "/a"): 403}) as azure:
        with pytest.raises(Refused, match="AuthorizationFailed: GET /a: said no") as denied:
            azure.arm().get("/a", "1")
        assert (denied.value.denied, denied.value.absent) == (True, False)
        with pytest.raises(Refused) as absent:
            azure.arm().get("/b", "1")
        assert (absent.value.denied, absent.value.absent) == (False, True)


def test_a_busy_azure_is_asked_again_and_not_for_ever() -> None:
    tries = iter([429, 503, {"ok": True}])
    with FakeArm({("GET", "/a"): lambda query, body: next(tries), ("GET", "/b"): 429}) as azure:
        assert azure.arm().get("/a", "1") == {"ok": True}
        assert azure.slept == [1.0, 2.0]
        with pytest.raises(Refused, match="TooManyRequests"):
            azure.arm().get("/b", "1")
        assert len(azure.asked("GET", "/b")) == 4


def test_a_login_that_is_not_accepted_ends_everything() -> None:
    with FakeArm({("GET", "/a"): 401}) as azure, pytest.raises(NoAccess, match="`az login` again"):
        azure.arm().get("/a", "1")


def test_an_azure_that_is_not_there_is_one_sentence() -> None:
    arm = Arm(SUBSCRIPTION, endpoint="http://127.0.0.1:9", token=lambda resource: "token")
    with pytest.raises(CannotLook, match=r"127\.0\.0\.1 cannot be reached from here"):
        arm.get("/a", "1")


def az(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An Azure CLI of one line, alone on PATH."""
    program = folder / "az"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(folder))


def test_the_token_is_the_clis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = json.dumps({"accessToken": "abc", "expiresOn": "2026-11-22 03:00:00.000000", "tokenType": "Bearer"})
    az(tmp_path, f"""[ "$1 $2 $3 $4" = "account get-access-token --resource https://x" ] && echo '{answer}'""", monkeypatch)
    assert cli_token("https://x") == "abc"


def test_without_a_login_it_says_how_to_log_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    az(tmp_path, "echo \"ERROR: Please run 'az login' to setup account.\" >&2; exit 1", monkeypatch)
    with pytest.raises(NoAccess) as error:
        cli_token("https://x")
    assert str(error.value) == f"{NO_LOGIN} (it says: ERROR: Please run 'az login' to setup account.)"


def test_without_the_cli_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoAccess, match=r"\(az\) is not on PATH"):
        cli_token("https://x")
