"""The checks of `python -m infra.account.preflight` for a stack on Azure: who asks, from where, and whether names are free.

What machines there are, and how many may be had, is in offers.py. Everything is read only.
"""

from collections.abc import Callable, Iterable, Iterator

from infra.account import preflight
from infra.account.preflight import programs
from infra.account.records import Check, Finding, fail, ok, warn
from infra.clouds.azure import names, offers
from infra.clouds.azure.look import GROUPS_VERSION, Look, find
from infra.clouds.azure.rest import Arm
from infra.config import Stack

# Resource providers that a subscription registers once, before the first resource of a kind.
PROVIDERS = (
    *("Microsoft.Compute", "Microsoft.ContainerRegistry", "Microsoft.ContainerService", "Microsoft.ManagedIdentity"),
    *("Microsoft.Network", "Microsoft.Storage"),
)
# Machines of a pool are then on one InfiniBand network (https://azure.github.io/aks-rdma-infiniband/getting-started/prerequisites,
# read 2026-11-25).
IB_FEATURE = "AKSInfinibandSupport"
# Program -> what needs it.
TOOLS = {
    "pulumi": "it runs the stack",
    "az": "Pulumi, kubelogin and these checks take its login",
    "kubelogin": "`up` and every kubeconfig get tokens of the cluster by it (az aks install-cli)",
}


def identity(look: Look) -> Iterator[Finding]:
    one = find(look.arm, look.arm.root, "2022-12-01")
    number = look.settings.subscription_id
    if one is None:
        yield fail(f"subscription {number} is not one that this login sees", "az account list --all; change azure.subscriptionId")
    elif one["state"] != "Enabled":
        yield fail(f"subscription {one['displayName']} ({number}) is {one['state'].lower()}", "ask who pays for it")
    else:
        yield ok(f"subscription {one['displayName']} ({number})")


def tools(look: Look) -> Iterator[Finding]:
    docker = {"docker": "images.build: docker builds here; `acr` needs no Docker"}
    yield from programs(look, {**TOOLS, **(docker if look.settings.images.build == "docker" else {})})


def providers_of(stack: Stack) -> tuple[str, ...]:
    """Those that the stack needs."""
    return (*PROVIDERS, *(("Microsoft.Insights", "Microsoft.OperationalInsights") if stack.logs.ship else ()))


def providers(look: Look) -> Iterator[Finding]:
    missing = []
    wanted = providers_of(look.stack)
    for name in wanted:
        state = look.arm.get(f"/providers/{name}", "2021-04-01")["registrationState"]
        if state != "Registered":
            missing.append(name)
            yield fail(f"{name} is {state.lower()}", f"az provider register --namespace {name} --wait")
    if not missing:
        yield ok(f"{', '.join(wanted)} are registered")


def features(look: Look) -> Iterator[Finding]:
    """Features of the subscription that node groups need."""
    if not any(group.network for group in look.groups):
        yield ok("none is needed")
        return
    one = look.arm.get(f"/providers/Microsoft.Features/providers/Microsoft.ContainerService/features/{IB_FEATURE}", "2021-07-01")
    state = one["properties"]["state"]
    if state == "Registered":
        yield ok(f"{IB_FEATURE} is registered")
    else:
        register = f"az feature register --namespace Microsoft.ContainerService --name {IB_FEATURE}"
        yield fail(
            f"{IB_FEATURE} is {state.lower()}: without it machines of a pool may be on different InfiniBand networks",
            f"{register}; when `az feature show` says Registered: az provider register --namespace Microsoft.ContainerService",
        )


def taken(look: Look) -> Iterator[Finding]:
    """Things that the stack would make under a fixed name, and somebody has made already."""
    clashes = [*_groups(look), *_world_wide(look)]
    yield from clashes or [ok(f"resource group {look.name} and what it would hold: the names are free, or the stack's own")]


def _groups(look: Look) -> Iterator[Finding]:
    for name in (look.name, f"{look.name}-nodes", f"{look.name}-data"):
        one = find(look.arm, f"/resourceGroups/{name}", GROUPS_VERSION)
        if one is None:
            continue
        if name.endswith("-data") and look.settings.storage.files.share_id is None and not _is_up(look):
            account = names.world_wide(look.stack_name, look.settings.subscription_id)
            share = f"{one['id']}/providers/Microsoft.Storage/storageAccounts/{account}/fileServices/default/shares/ebb"
            text = f"resource group {name} is there: an earlier destroy has kept its data, and `up` cannot make it again"
            yield fail(text, f"set azure.storage.files.shareId: {share}; or remove the data: az group delete --name {name}")
        elif name == look.name and not look.is_ours(one.get("tags")):
            yield fail(f"there is a resource group {name} that no stack of Ebb has made", "pulumi stack init another name")


def _is_up(look: Look) -> bool:
    group = find(look.arm, f"/resourceGroups/{look.name}", GROUPS_VERSION)
    return group is not None and look.is_ours(group.get("tags"))


def _world_wide(look: Look) -> Iterator[Finding]:
    """Names of registries and of storage accounts are one space for all of Azure."""
    if _is_up(look):
        return
    name = names.world_wide(look.stack_name, look.settings.subscription_id)
    asked = {"Microsoft.ContainerRegistry/registries": "2023-07-01"} if look.settings.images.build != "none" else {}
    for kind, version in asked.items():
        provider = kind.partition("/")[0]
        said = look.arm.post(f"/providers/{provider}/checkNameAvailability", version, {"name": name, "type": kind})
        if not said["nameAvailable"]:
            yield fail(f"the name {name} is taken: {said.get('message', '')}", "pulumi stack init another name")


def network(look: Look) -> Iterator[Finding]:
    """Existing subnets: that they are there, and have a way out."""
    given = look.settings.network
    if given.subnet_id is None:
        yield ok("an own network")
        return
    subnet = find(look.arm, given.subnet_id, "2024-05-01")
    if subnet is None:
        yield fail(f"there is no subnet {given.subnet_id}", "change azure.network.subnetId")
        return
    properties, name = subnet["properties"], given.subnet_id.rpartition("/")[2]
    needed = {"nat-gateway": "natGateway", "routes": "routeTable"}[given.outbound]
    if needed not in properties:
        yield fail(
            f"subnet {name} has no {needed}, and azure.network.outbound is {given.outbound}", "add one, or change outbound"
        )
    else:
        yield ok(f"subnet {name} {properties.get('addressPrefix', '')} goes out by its {needed}")


def reach(look: Look) -> Iterator[Finding]:
    cluster = look.settings.cluster
    if cluster.endpoint == "private":
        yield warn("the endpoint is private and upReachesNetwork says that this machine is in the network: not checked")
    else:
        yield from preflight.reach(look, "azure.cluster.authorizedRanges", cluster.authorized_ranges)


# Those first without which the others cannot be made.
CHECKS: dict[str, Callable[[Look], Iterable[Finding]]] = {
    "login and subscription": identity,
    "programs on this machine": tools,
    "resource providers": providers,
    "features of the subscription": features,
    "region and zones": offers.zones,
    "machines in their zones": offers.machines,
    "the catalog's facts": offers.facts,
    "quotas (vCPUs)": offers.quotas,
    "Kubernetes": offers.kubernetes,
    "names": taken,
    "network": network,
    "the way to the cluster": reach,
}


def checks(stack_name: str, stack: Stack) -> list[Check]:
    """All checks."""
    return preflight.checks(CHECKS, Look(stack_name=stack_name, stack=stack, arm=Arm(stack.settings.subscription_id)))
