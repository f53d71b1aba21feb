"""The neutral half of preflight: findings are told as they come, and the outcome is an exit code and one JSON line."""

import json
from collections.abc import Iterator

import pytest

from infra import commands, config
from infra.account import preflight
from infra.account.records import Check, Finding
from infra.commands import CannotLook
from infra.config import ROOT

STACK = config.read("local", ROOT)


def found(*findings: Finding) -> Check:
    return Check(what="quotas", look=lambda: iter(findings))


GOOD = Finding(level="ok", text="192 vCPUs")
KNOW = Finding(level="warn", text="a newer version")
BAD = Finding(level="fail", text="0 vCPUs", fix="aws service-quotas ...")


def test_findings_are_told_one_by_one_with_their_fix() -> None:
    told: list[str] = []
    preflight.run([found(GOOD, KNOW), Check(what="names", look=lambda: [BAD])], told.append)
    assert told == [
        "[1/2] quotas",
        "  ok    192 vCPUs",
        "  warn  a newer version",
        "[2/2] names",
        "  fail  0 vCPUs",
        "        -> aws service-quotas ...",
    ]


@pytest.mark.parametrize(
    ("checks", "code", "said"),
    [
        ([found(GOOD, KNOW)], commands.EXIT_GOOD, {"ok": 1, "warn": 1, "fail": 0, "failed": []}),
        ([found(GOOD), found(BAD)], commands.EXIT_BAD, {"ok": 1, "warn": 0, "fail": 1, "failed": ["0 vCPUs"]}),
    ],
    ids=["good", "bad"],
)
def test_the_outcome_is_an_exit_code_and_a_json_line(
    checks: list[Check], code: int, said: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert preflight.conclude("local", STACK, checks) == code
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"stack": "local", **said}


def test_a_cloud_without_an_account_has_nothing_to_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert preflight.main(["-s", "local"]) == commands.EXIT_GOOD
    assert "has no account to look at" in capsys.readouterr().out


def test_what_cannot_be_looked_at_is_one_sentence_and_its_own_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    def blind() -> Iterator[Finding]:
        raise CannotLook("there are no credentials: log in")
        yield GOOD

    check = Check(what="credentials", look=blind)
    assert commands.run(lambda: preflight.conclude("local", STACK, [check, found(GOOD)])) == commands.EXIT_BLIND
    told = capsys.readouterr()
    assert told.err == "there are no credentials: log in\n"
    assert json.loads(told.out.splitlines()[-1]) == {"error": "there are no credentials: log in"}


def test_an_interrupt_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def stop() -> int:
        raise KeyboardInterrupt

    assert commands.run(stop) == commands.EXIT_INTERRUPTED
    assert capsys.readouterr().err == "interrupted; nothing was changed\n"
