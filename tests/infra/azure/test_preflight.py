"""The Azure checks, against a healthy subscription and one with one thing wrong at a time."""

from collections.abc import Callable
from typing import Any

import pytest

from infra.account import preflight as neutral
from infra.account.records import Finding
from infra.clouds.azure import names, preflight
from infra.clouds.azure.look import Look
from tests.infra.azure import stacks
from tests.infra.azure.fake_arm import Answer, Answers, FakeArm

COMPUTE = "/providers/Microsoft.Compute"
SKUS, USAGES = f"{COMPUTE}/skus", f"{COMPUTE}/locations/westus2/usages"
VERSIONS = "/providers/Microsoft.ContainerService/locations/westus2/kubernetesVersions"
FREE_NAME = "/providers/Microsoft.ContainerRegistry/checkNameAvailability"
GROUP, DATA = "/resourceGroups/ebb-dev", "/resourceGroups/ebb-dev-data"


def sku(
    name: str, family: str, zones: list[str] | None = None, restrictions: list[Any] | None = None, **changed: str
) -> dict[str, Any]:
    """As https://learn.microsoft.com/rest/api/compute/resource-skus/list has it."""
    facts = {
        "Standard_NC4as_T4_v3": {"vCPUs": "4", "MemoryGB": "28", "GPUs": "1"},
        "Standard_D4s_v5": {"vCPUs": "4", "MemoryGB": "16"},
    }[name]
    said = {**facts, "LowPriorityCapable": "True", "EphemeralOSDiskSupported": "True", **changed}
    return {
        "name": name,
        "resourceType": "virtualMachines",
        "family": family,
        "locations": ["westus2"],
        "locationInfo": [{"location": "westus2", "zones": zones or ["1", "2", "3"]}],
        "capabilities": [{"name": key, "value": value} for key, value in said.items()],
        "restrictions": restrictions or [],
    }


T4, D4 = sku("Standard_NC4as_T4_v3", "Standard NCASv3_T4 Family"), sku("Standard_D4s_v5", "standardDSv5Family")


def usage(value: str, limit: int, used: int = 0) -> dict[str, Any]:
    return {"name": {"value": value, "localizedValue": value}, "limit": limit, "currentValue": used, "unit": "Count"}


def usages(spot: int = 100, family: int = 50) -> Answer:
    listed = [usage("lowPriorityCores", spot), usage("Standard NCASv3_T4 Family", family), usage("standardDSv5Family", 20)]
    return {"value": [*listed, usage("cores", 200, 12)]}


def healthy() -> dict[tuple[str, str], Answer]:
    mapped = [{"logicalZone": number, "physicalZone": f"westus2-az{number}"} for number in "123"]
    registered: dict[tuple[str, str], Answer] = {
        ("GET", f"/providers/{name}"): {"namespace": name, "registrationState": "Registered"} for name in preflight.PROVIDERS
    }
    return registered | {
        ("GET", "/"): {"displayName": "Research", "state": "Enabled"},
        ("GET", "/locations"): {"value": [{"name": "westus2", "availabilityZoneMappings": mapped}, {"name": "westus"}]},
        ("GET", SKUS): {"value": [T4, D4, {"name": "Premium_LRS", "resourceType": "disks"}]},
        ("GET", USAGES): usages(),
        ("GET", VERSIONS): {"values": [{"version": "1.35", "patchVersions": {"1.35.1": {}, "1.35.4": {}}}, {"version": "1.36"}]},
        ("POST", FREE_NAME): {"nameAvailable": True},
    }


def look(azure: FakeArm, address: str = "198.51.100.7", absent: tuple[str, ...] = (), **section: Any) -> Look:
    stack = stacks.stack(**section)
    return Look(
        stack_name="dev",
        stack=stack,
        arm=azure.arm(),
        which=lambda program: None if program in absent else f"/usr/bin/{program}",
        address=lambda: address,
    )


def findings(changes: Answers | None = None, **given: Any) -> list[Finding]:
    with FakeArm({**healthy(), **(changes or {})}) as azure:
        return neutral.run(neutral.checks(preflight.CHECKS, look(azure, **given)), lambda line: None)


def not_ok(changes: Answers | None = None, **given: Any) -> list[tuple[str, str, str]]:
    return [(one.level, one.text, one.fix) for one in findings(changes, **given) if one.level != "ok"]


def test_a_healthy_subscription_is_all_ok() -> None:
    assert not_ok() == []


def test_every_check_says_something_and_asks_nothing_that_changes_anything() -> None:
    with FakeArm(healthy()) as azure:
        for check in neutral.checks(preflight.CHECKS, look(azure)):
            assert list(check.look()), check.what
        assert {(method, path) for method, path, _, _ in azure.seen if method != "GET"} == {("POST", FREE_NAME)}


def raised(quota: str, value: int) -> str:
    """The command that asks for more."""
    scope = f"/subscriptions/{stacks.SUBSCRIPTION}/providers/Microsoft.Compute/locations/westus2"
    return f"az quota update --resource-name {quota} --scope {scope} --limit-object value={value} limit-object-type=LimitValue"


LOCATION = {"type": "Location", "reasonCode": "NotAvailableForSubscription", "restrictionInfo": {"locations": ["westus2"]}}
ZONE = {
    "type": "Zone",
    "reasonCode": "NotAvailableForSubscription",
    "restrictionInfo": {"locations": ["westus2"], "zones": ["2"]},
}
CHANGE_ZONES = "change the group's zones"
CASES: list[tuple[str, Callable[[], list[tuple[str, str, str]]], list[tuple[str, str, str]]]] = [
    (
        "no such subscription",
        lambda: not_ok({("GET", "/"): 404}),
        [("fail", f"subscription {stacks.SUBSCRIPTION} is not one that this login sees",
          "az account list --all; change azure.subscriptionId")],
    ),
    (
        "a subscription that is off",
        lambda: not_ok({("GET", "/"): {"displayName": "Research", "state": "Disabled"}}),
        [("fail", f"subscription Research ({stacks.SUBSCRIPTION}) is disabled", "ask who pays for it")],
    ),
    (
        "no kubelogin",
        lambda: not_ok(absent=("kubelogin",)),
        [("fail", "kubelogin is not on PATH: `up` and every kubeconfig get tokens of the cluster by it (az aks install-cli)",
          "install kubelogin")],
    ),
    (
        "no docker",
        lambda: not_ok(absent=("docker",), images={"build": "docker"}),
        [("fail", "docker is not on PATH: images.build: docker builds here; `acr` needs no Docker", "install docker")],
    ),
    (
        "a provider that is not registered",
        lambda: not_ok({("GET", "/providers/Microsoft.ContainerService"): {"registrationState": "NotRegistered"}}),
        [("fail", "Microsoft.ContainerService is notregistered",
          "az provider register --namespace Microsoft.ContainerService --wait")],
    ),
    (
        "a region without zones",
        lambda: not_ok({("GET", "/locations"): {"value": [{"name": "westus2"}]}}),
        [("fail", "westus2-1, westus2-2: not a zone of this subscription; it has none", "change ebb:zones, or azure.location")],
    ),
    (
        "a machine that is not in a zone",
        lambda: not_ok({("GET", SKUS): {"value": [sku("Standard_NC4as_T4_v3", T4["family"], zones=["1"]), D4]}}),
        [("fail", "spot-t4-westus2-2: westus2-2 has no Standard_NC4as_T4_v3; westus2-1 has", CHANGE_ZONES)],
    ),
    (
        "a machine that the subscription may not have in a zone",
        lambda: not_ok({("GET", SKUS): {"value": [sku("Standard_NC4as_T4_v3", T4["family"], restrictions=[ZONE]), D4]}}),
        [("fail", "spot-t4-westus2-2: westus2-2 has no Standard_NC4as_T4_v3; westus2-1, westus2-3 has", CHANGE_ZONES)],
    ),
    (
        "a machine that the subscription may not have at all",
        lambda: not_ok({("GET", SKUS): {"value": [T4, sku("Standard_D4s_v5", D4["family"], restrictions=[LOCATION])]}}),
        [("fail", "manager: this subscription may not have Standard_D4s_v5 in westus2",
          "ask Azure's support for the size, or take another region")],
    ),
    (
        "a fact that has changed",
        lambda: not_ok({("GET", SKUS): {"value": [sku("Standard_NC4as_T4_v3", T4["family"], vCPUs="6"), D4]}}),
        [("fail", "Standard_NC4as_T4_v3: the catalog says vCPUs 4, Azure says 6", "correct infra/clouds/azure/machines.yaml")],
    ),
    (
        "a machine that is never spot",
        lambda: not_ok({("GET", SKUS): {"value": [sku("Standard_NC4as_T4_v3", T4["family"], LowPriorityCapable="False"), D4]}}),
        [("fail", "Standard_NC4as_T4_v3 cannot be had as spot", "set capacity: on-demand")],
    ),
    (
        "no quota for spot",
        lambda: not_ok({("GET", USAGES): usages(spot=0)}),
        [("fail", "lowPriorityCores: 0 vCPUs, 0 in use; the stack wants up to 64 (spot-t4-westus2-1, spot-t4-westus2-2): no "
          "machine can start", raised("lowPriorityCores", 64))],
    ),
    (
        "little quota for a family",
        lambda: not_ok({("GET", USAGES): usages(family=4)}),
        [("warn", "Standard NCASv3_T4 Family: 4 vCPUs, 0 in use; the stack wants up to 8 (on-demand-t4-westus2-1): groups do not "
          "reach their max", raised("'Standard NCASv3_T4 Family'", 8))],
    ),
    (
        "a version that AKS has not",
        lambda: not_ok({("GET", VERSIONS): {"values": [{"version": "1.36"}]}}),
        [("fail", "AKS has no Kubernetes 1.35 here; it has 1.36", "change kubernetesVersion")],
    ),
    (
        "a version in preview",
        lambda: not_ok({("GET", VERSIONS): {"values": [{"version": "1.35", "isPreview": True}]}}),
        [("fail", "Kubernetes 1.35 is a preview here", "change kubernetesVersion")],
    ),
    (
        "a group of others",
        lambda: not_ok({("GET", GROUP): {"id": "x", "tags": {}}}),
        [("fail", "there is a resource group ebb-dev that no stack of Ebb has made", "pulumi stack init another name")],
    ),
    (
        "data that an earlier destroy has kept",
        lambda: not_ok({("GET", DATA): {"id": f"/subscriptions/{stacks.SUBSCRIPTION}{DATA}", "tags": {"ebb-stack": "dev"}}}),
        [("fail", "resource group ebb-dev-data is there: an earlier destroy has kept its data, and `up` cannot make it again",
          f"set azure.storage.files.shareId: /subscriptions/{stacks.SUBSCRIPTION}{DATA}/providers/Microsoft.Storage/"
          f"storageAccounts/{names.world_wide('dev', stacks.SUBSCRIPTION)}/fileServices/default/shares/ebb; or remove the data: "
          "az group delete --name ebb-dev-data")],
    ),
    (
        "a name that somebody in the world has",
        lambda: not_ok({("POST", FREE_NAME): {"nameAvailable": False, "reason": "AlreadyExists", "message": "in use."}}),
        [("fail", f"the name {names.world_wide('dev', stacks.SUBSCRIPTION)} is taken: in use.",
          "pulumi stack init another name")],
    ),
    (
        "a subnet that is not there",
        lambda: not_ok(network=stacks.EXISTING),
        [("fail", f"there is no subnet {stacks.EXISTING['subnetId']}", "change azure.network.subnetId")],
    ),
    (
        "this machine is outside",
        lambda: not_ok(address="203.0.113.5"),
        [("fail", "this machine (203.0.113.5) is not in azure.cluster.authorizedRanges (198.51.100.0/24)", "add 203.0.113.5/32")],
    ),
    (
        "a right that is missing",
        lambda: not_ok({("GET", VERSIONS): 403}),
        [("warn", f"not checked: GET /subscriptions/{stacks.SUBSCRIPTION}{VERSIONS}: AuthorizationFailed: GET {VERSIONS}: "
          "said no",
          "give this identity the right to read it, or ask who has it")],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("found", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_one_thing_wrong_is_one_finding(
    found: Callable[[], list[tuple[str, str, str]]], expected: list[tuple[str, str, str]]
) -> None:
    assert found() == expected


def test_a_stack_that_is_up_has_its_names() -> None:
    ours = {"id": "x", "tags": {"ebb-stack": "dev"}}
    assert not_ok({("GET", GROUP): ours, ("GET", DATA): ours, ("POST", FREE_NAME): {"nameAvailable": False}}) == []


@pytest.mark.parametrize(("inside", "level"), [({"natGateway": {"id": "x"}}, []), ({}, ["fail"])], ids=["way out", "none"])
def test_an_existing_subnet_needs_its_way_out(inside: dict[str, Any], level: list[str]) -> None:
    path = stacks.EXISTING["subnetId"].removeprefix(f"/subscriptions/{stacks.SUBSCRIPTION}")
    said = not_ok({("GET", path): {"properties": {"addressPrefix": "10.1.0.0/20", **inside}}}, network=stacks.EXISTING)
    assert [one for one, _, _ in said] == level


def test_a_private_endpoint_is_not_tried() -> None:
    wanted = stacks.cluster(endpoint="private", upReachesNetwork=True, authorizedRanges=[])
    assert [level for level, _, _ in not_ok(cluster=wanted, address="203.0.113.5")] == ["warn"]
