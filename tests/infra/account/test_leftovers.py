"""The neutral half of the search for leftovers: what a person reads, and the exit code."""

import json

import pytest

from infra import commands
from infra.account import leftovers
from infra.account.records import Left, Seen

VOLUME = Left(kind="volumes", name="vol-1", note="available", usd_per_month=0.8, remove="aws ec2 delete-volume --volume-id vol-1")
MACHINE = Left(kind="instances", name="i-1", usd_per_month=None, remove="aws ec2 terminate-instances --instance-ids i-1")
DATA = Left(kind="EFS", name="fs-1", usd_per_month=15.0, remove="aws efs delete-file-system", kept="data: keep")


def test_what_is_left_comes_with_its_price_and_the_command_that_removes_it() -> None:
    assert leftovers.text(Seen(things=(MACHINE, DATA, VOLUME), blind=("FSx: denied",))) == [
        "left over",
        "instances  i-1       ? USD/month",
        "volumes    vol-1  0.80 USD/month  available",
        "",
        "to remove it, in this order",
        "  aws ec2 terminate-instances --instance-ids i-1",
        "  aws ec2 delete-volume --volume-id vol-1",
        "",
        "kept on purpose",
        "EFS  fs-1  15.00 USD/month: data: keep",
        "  aws efs delete-file-system",
        "",
        "could not be looked at",
        "  FSx: denied",
    ]


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        (Seen(things=()), commands.EXIT_GOOD),
        (Seen(things=(DATA,)), commands.EXIT_GOOD),
        (Seen(things=(VOLUME,)), commands.EXIT_BAD),
        (Seen(things=(), blind=("FSx: denied",)), commands.EXIT_BAD),
    ],
    ids=["nothing", "kept", "left", "blind"],
)
def test_the_exit_code_says_whether_something_is_left(seen: Seen, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert leftovers.conclude("dev", seen) == code
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["left"] == [{"kind": one.kind, "name": one.name} for one in seen.things if not one.kept]
    assert said["notLookedAt"] == list(seen.blind)


def test_only_what_is_not_kept_counts_as_money() -> None:
    assert leftovers.summary(Seen(things=(VOLUME, DATA, MACHINE)))["usdPerMonth"] == 0.8


def test_nothing_is_said_in_a_word() -> None:
    assert leftovers.text(Seen(things=())) == ["nothing is left"]


def test_a_cloud_without_an_account_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert leftovers.main(["-s", "local"]) == commands.EXIT_GOOD
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["left"] == []
