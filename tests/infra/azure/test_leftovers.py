"""What a destroy may leave on Azure, and how it is told."""

from typing import Any

import pytest

from infra.account import leftovers as neutral
from infra.account.records import Left, Seen
from infra.clouds.azure import leftovers
from infra.clouds.azure.rest import NoAccess
from tests.infra.azure import stacks
from tests.infra.azure.fake_arm import Answer, FakeArm

NOTHING: Answer = {"value": []}
DELETE = f"az group delete --subscription {stacks.SUBSCRIPTION} --name"


def group(name: str, *kinds: str) -> dict[tuple[str, str], Answer]:
    """A resource group with things in it, as https://learn.microsoft.com/rest/api/resources has both."""
    path = f"/resourceGroups/{name}"
    return {
        ("GET", path): {"id": f"/subscriptions/{stacks.SUBSCRIPTION}{path}", "name": name, "tags": {"ebb-stack": "dev"}},
        ("GET", f"{path}/resources"): {"value": [{"id": f"{path}/{kind}", "name": "x", "type": kind} for kind in kinds]},
    }


def seen(answers: dict[tuple[str, str], Answer], **section: Any) -> Seen:
    with FakeArm({("GET", "/resources"): NOTHING, **answers}) as azure:
        found = leftovers.seen("dev", stacks.stack(**section), lambda line: None, azure.arm())
        assert {method for method, _, _, _ in azure.seen} == {"GET"}, "it removes nothing"
        return found


def test_an_empty_subscription_has_nothing() -> None:
    assert seen({}) == Seen(things=())


def test_groups_that_are_still_there_come_in_the_order_in_which_they_go() -> None:
    found = seen(
        {
            **group(
                "ebb-dev-nodes", "Microsoft.Compute/virtualMachineScaleSets", "Microsoft.Compute/disks", "Microsoft.Compute/disks"
            ),
            **group("ebb-dev"),
        },
        storage={"files": {}, "data": "delete"},
    )
    assert found.things == (
        Left(kind="resource group", name="ebb-dev", note="empty", usd_per_month=0.0, remove=f"{DELETE} ebb-dev --yes"),
        Left(
            kind="resource group",
            name="ebb-dev-nodes",
            note="2 disks, 1 virtualMachineScaleSets",
            usd_per_month=None,
            remove=f"{DELETE} ebb-dev-nodes --yes",
        ),
    )


@pytest.mark.parametrize(("data", "counts"), [("keep", False), ("delete", True)])
def test_data_is_kept_on_purpose_or_left_over(data: str, counts: bool) -> None:
    found = seen(group("ebb-dev-data", "Microsoft.Storage/storageAccounts"), storage={"files": {}, "data": data})
    assert bool(neutral.summary(found)["left"]) is counts
    [one] = found.things
    assert ("shareId" in one.kept) is not counts


def test_what_carries_the_tag_elsewhere_is_found_and_what_is_in_its_groups_is_told_once() -> None:
    base = f"/subscriptions/{stacks.SUBSCRIPTION}/resourceGroups"
    disk = {"id": f"{base}/attic/providers/Microsoft.Compute/disks/old", "name": "old", "type": "Microsoft.Compute/disks"}
    inside = {**disk, "id": f"{base}/EBB-DEV/providers/Microsoft.Compute/disks/ebb-dev-etcd"}
    asked: list[str] = []

    def tagged(query: dict[str, str], body: Any) -> dict[str, Any]:
        asked.append(query["$filter"])
        return {"value": [disk, inside]}

    found = seen({("GET", "/resources"): tagged})
    assert asked == ["tagName eq 'ebb-stack' and tagValue eq 'dev'"]
    assert found.things == (
        Left(
            kind="Microsoft.Compute/disks", name="old", note="in attic", usd_per_month=None,
            remove=f"az resource delete --ids {disk['id']}",
        ),
    )  # fmt: skip


def test_what_cannot_be_looked_at_is_said_and_hides_nothing() -> None:
    found = seen({("GET", "/resources"): 403, **group("ebb-dev")})
    assert [one.name for one in found.things] == ["ebb-dev"]
    [said] = found.blind
    assert said.startswith("the stack's tag: GET ")


def test_without_a_login_nothing_is_looked_at() -> None:
    with FakeArm({("GET", "/resourceGroups/ebb-dev"): 401}) as azure, pytest.raises(NoAccess):
        leftovers.seen("dev", stacks.stack(), lambda line: None, azure.arm())
