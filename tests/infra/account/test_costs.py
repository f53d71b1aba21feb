"""Costs: what a person and a program read of them. What each line is, is in the tests of each cloud."""

import json

import pytest

from infra import commands
from infra.account import costs
from infra.account.records import Line, Sheet, Use
from tests.infra.stacks import STACKS


def test_the_table_is_one_that_a_person_reads() -> None:
    found = Sheet(
        lines=(Line(what="control plane", idle=0.1, full=0.1), Line(what="machines", idle=0, full=2.5, note="0 to 5")),
        uses=(Use(what="reading", usd=0.03, unit="per GB"),),
        advice=("take less",),
        basis=("list prices",),
    )
    assert costs.text(found) == [
        "USD per hour      idle   full",
        "control plane    0.100  0.100",
        "machines         0.000  2.500  0 to 5",
        "total per hour   0.100  2.600",
        "total per month     73  1,898",
        "",
        "paid by use",
        "reading  0.030 USD  per GB",
        "",
        "advice",
        "  - take less",
        "",
        "prices",
        "  - list prices",
    ]
    assert costs.summary(found) == {"usdPerHourIdle": 0.1, "usdPerHourFull": 2.6, "usdPerMonthIdle": 73.0}


@pytest.mark.parametrize("stack", STACKS)
def test_the_command_ends_with_json(stack: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert costs.main(["-s", stack]) == commands.EXIT_GOOD
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["stack"] == stack
    assert (said["usdPerHourIdle"] == 0) is (stack in {"local", "lab"})
    assert said["usdPerHourFull"] >= said["usdPerHourIdle"]


def test_a_stack_without_a_file_is_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert costs.main(["-s", "absent"]) == commands.EXIT_USAGE
    assert "stacks with a file are" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["costs", "preflight", "leftovers"])
def test_help_teaches(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    import importlib

    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"infra.account.{module}").main(["--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert f"python -m infra.account.{module}" in said
    assert "exit codes: 0 " in said
