"""The mock of pulumi-resource-eks: the remote component `eks:index:Cluster`, with the children that the real one makes.

Written after what pulumi-eks 4.x does under the arguments that this stack may use (nodejs/eks/cluster/cluster.ts, read 2026-11);
the rest (default node group, Fargate, auto mode, aws-auth, OIDC provider) is refused by name. Not reproduced: the environment
that VpcCniAddon computes for its add-on, and the wait for the API server.
"""

import pulumi
from pulumi.provider import ConstructResult, Provider

from testing.pulumi.mocks.component import TYPE, Cluster, Inputs, add_on_wanted, core_dns_wanted, option
from testing.pulumi.mocks.package import Asked, Difference, Failure, MockError, Object

ARGUMENTS = frozenset(
    (
        *("name", "version", "vpcId", "subnetIds", "privateSubnetIds", "publicSubnetIds", "authenticationMode", "accessEntries"),
        *("skipDefaultNodeGroup", "skipDefaultSecurityGroups", "bootstrapSelfManagedAddons", "useDefaultVpcCni"),
        *("vpcCniOptions", "kubeProxyAddonOptions", "corednsAddonOptions", "upgradePolicy", "endpointPrivateAccess"),
        *("endpointPublicAccess", "publicAccessCidrs", "serviceRole", "enabledClusterLogTypes", "encryptionConfigKeyArn"),
        *("tags", "clusterTags", "clusterSecurityGroupTags", "nodeSecurityGroupTags", "deletionProtection"),
        *("providerCredentialOpts", "enableConfigMapMutable", "kubernetesServiceIpAddressRange", "ipFamily"),
        *("createOidcProvider", "createInstanceRole"),
    )
)
ONLY = {"skipDefaultNodeGroup": True, "createOidcProvider": False, "createInstanceRole": False}


class Components(Provider):
    """What the SDK's servicer calls for Construct."""

    def __init__(self) -> None:
        super().__init__("4.4.0")

    def construct(
        self, name: str, resource_type: str, inputs: Inputs, options: pulumi.ResourceOptions | None = None
    ) -> ConstructResult:
        if resource_type != TYPE:
            raise MockError(f"{resource_type} is not served by the mock: of pulumi_eks, only {TYPE} is.")
        refuse(inputs)
        cluster = Cluster(name, inputs, options)
        return ConstructResult(cluster.urn, cluster.state)


class Package:
    """All but Construct: the package has no plain resources."""

    components = Components()

    def check_config(self, inputs: Object) -> list[Failure]:
        return [Failure(key, "is not a setting: the provider has none") for key in inputs if key != "version"]

    def configure(self, inputs: Object) -> None:
        pass

    def check(self, asked: Asked, inputs: Object, old: Object, seed: bytes) -> tuple[Object, list[Failure]]:
        raise MockError(f"{asked.token} is not served by the mock: of pulumi_eks, only {TYPE} is.")

    def diff(self, asked: Asked, old: Object, outputs: Object, new: Object) -> Difference:
        raise NotImplementedError(asked.token)

    def create(self, asked: Asked, inputs: Object, *, preview: bool) -> tuple[str, Object]:
        raise NotImplementedError(asked.token)

    def update(self, asked: Asked, outputs: Object, old: Object, new: Object, *, preview: bool) -> Object:
        raise NotImplementedError(asked.token)

    def invoke(self, token: str, arguments: Object) -> Object:
        raise MockError(f"the mock has no function {token}.")


def package() -> Package:
    return Package()


def refuse(inputs: Inputs) -> None:
    """Raises MockError with all that is wrong with the arguments."""
    wrong = [f"{key} is not served by the mock" for key in inputs if key not in ARGUMENTS]
    wrong += [
        f"{key} must be {wanted}" for key, wanted in ONLY.items() if inputs.get(key, wanted if not wanted else None) != wanted
    ]
    if inputs.get("authenticationMode") != "API":
        wrong.append(f"authenticationMode is {inputs.get('authenticationMode')!r}, and must be 'API'")
    if not inputs.get("vpcId"):
        wrong.append("vpcId is missing: pulumi_eks would look for a default VPC")
    if inputs.get("subnetIds") and (inputs.get("publicSubnetIds") or inputs.get("privateSubnetIds")):
        wrong.append("subnetIds excludes publicSubnetIds and privateSubnetIds")
    wrong += [f"{one} has no version: pulumi_eks would look up the most recent one" for one in _unpinned(inputs)]
    if wrong:
        raise MockError(f"{TYPE}: {'; '.join(wrong)}. testing/pulumi/mocks/cluster.py says what is served.")


def _unpinned(inputs: Inputs) -> list[str]:
    found = []
    if add_on_wanted(inputs, "kubeProxyAddonOptions") and not option(inputs, "kubeProxyAddonOptions", "version"):
        found.append("kubeProxyAddonOptions")
    if core_dns_wanted(inputs) and not option(inputs, "corednsAddonOptions", "version"):
        found.append("corednsAddonOptions")
    if not inputs.get("useDefaultVpcCni") and not option(inputs, "vpcCniOptions", "addonVersion"):
        found.append("vpcCniOptions.addonVersion")
    return found
