"""The mock of pulumi-resource-eks: the remote component `eks:index:Cluster`, with the children that the real one makes.

Written after what pulumi-eks 4.x does under the arguments that this stack may use (nodejs/eks/cluster/cluster.ts, read 2026-11);
the rest (default node group, Fargate, auto mode, aws-auth, OIDC provider) is refused by name. Not reproduced: the environment
that VpcCniAddon computes for its add-on, and the wait for the API server.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi.provider import ConstructResult, Provider
from pulumi_aws import ec2, eks, iam

from testing.pulumi.mocks.package import Asked, Difference, Failure, MockError, Object

TYPE = "eks:index:Cluster"
KEPT = ["accessConfig.bootstrapClusterCreatorAdminPermissions", "bootstrapSelfManagedAddons"]  # the component's ignoreChanges

Inputs = Mapping[str, Any]


class EksCluster(pulumi.ComponentResource):
    """`state`: the component's outputs, by their names in the schema."""

    def __init__(self, name: str, inputs: Inputs, options: pulumi.ResourceOptions | None) -> None:
        super().__init__(TYPE, name, None, options)
        self._name, self._inputs = name, inputs
        role = inputs.get("serviceRole") or self._service_role()
        group = None if inputs.get("skipDefaultSecurityGroups") else self._security_group()
        cluster = self._cluster(role, group)
        kubeconfig = self._kubeconfig(cluster)
        provider = self._kubernetes(kubeconfig)
        entries = self._access_entries(cluster)
        self._add_ons(cluster, entries)
        nodes = self._node_security_group(cluster, group) if group else None
        core = {"cluster": cluster, "clusterIamRole": role, "provider": provider, "kubeconfig": kubeconfig}
        self.state = self._outputs(cluster, core, group, nodes)
        self.register_outputs(self.state)

    def _child(self, *needs: pulumi.Resource, **more: Any) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=list(needs), **more)

    def _subnets(self) -> Any:
        if "subnetIds" in self._inputs:
            return self._inputs["subnetIds"]
        both = [self._inputs.get(key) or [] for key in ("publicSubnetIds", "privateSubnetIds")]
        return pulumi.Output.all(*both).apply(lambda lists: [*lists[0], *lists[1]])

    def _tags(self, name: str, own: str) -> Any:
        return pulumi.Output.all(self._inputs.get(own), self._inputs.get("tags")).apply(
            lambda tags: {"Name": f"{self._name}-{name}", **(tags[0] or {}), **(tags[1] or {})}
        )

    def _cluster(self, role: Any, group: "ec2.SecurityGroup | None") -> "eks.Cluster":
        given = self._inputs
        network = {
            key: given[key] for key in ("endpointPrivateAccess", "endpointPublicAccess", "publicAccessCidrs") if key in given
        }
        key_arn, mode = given.get("encryptionConfigKeyArn"), given["authenticationMode"]
        addresses = {
            "service_ipv4_cidr": given.get("kubernetesServiceIpAddressRange"),
            "ip_family": given.get("ipFamily", "ipv4"),
        }
        ranged = given.get("kubernetesServiceIpAddressRange") or given.get("ipFamily")
        arguments: dict[str, Any] = {
            "name": given.get("name"),
            "role_arn": pulumi.Output.from_input(role).apply(lambda found: found.arn),
            "kubernetes_network_config": {key: value for key, value in addresses.items() if value} if ranged else None,
            "bootstrap_self_managed_addons": given.get("bootstrapSelfManagedAddons", True),
            "vpc_config": {
                **({"security_group_ids": [group.id]} if group else {}),
                "subnet_ids": self._subnets(),
                **{_snake(key): value for key, value in network.items()},
            },
            "version": given.get("version"),
            "enabled_cluster_log_types": given.get("enabledClusterLogTypes"),
            "tags": self._tags("eksCluster", "clusterTags"),
            "encryption_config": {"provider": {"key_arn": key_arn}, "resources": ["secrets"]} if key_arn else None,
            "access_config": {"authentication_mode": mode, "bootstrap_cluster_creator_admin_permissions": True},
            "upgrade_policy": _snake_keys(given.get("upgradePolicy")),
            "deletion_protection": given.get("deletionProtection"),
        }
        needs = [one for one in [self._role_ready] if one]
        return eks.Cluster(f"{self._name}-eksCluster", **arguments, opts=self._child(*needs, ignore_changes=KEPT))

    _role_ready: pulumi.Resource | None = None

    def _service_role(self) -> "iam.Role":
        """A role with the cluster's managed policy, in a component of its own."""
        part = pulumi.ComponentResource("eks:index:ServiceRole", f"{self._name}-eksRole", None, self._child())
        statement = {
            "Action": ["sts:AssumeRole", "sts:TagSession"], "Effect": "Allow", "Principal": {"Service": ["eks.amazonaws.com"]},
        }  # fmt: skip
        below = pulumi.ResourceOptions(parent=part)
        role = iam.Role(
            f"{self._name}-eksRole-role",
            description="Allows EKS to manage clusters on your behalf.",
            assume_role_policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}),
            tags=self._inputs.get("tags"),
            opts=below,
        )
        policy = "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"
        digest = hashlib.sha1(policy.encode()).hexdigest()[:8]  # noqa: S324 - as the real one names it
        self._role_ready = iam.RolePolicyAttachment(
            f"{self._name}-eksRole-{digest}", policy_arn=policy, role=role.name, opts=below
        )
        part.register_outputs({"directRole": role})
        return role

    def _security_group(self) -> "ec2.SecurityGroup":
        name = f"{self._name}-eksClusterSecurityGroup"
        group = ec2.SecurityGroup(
            name, vpc_id=self._inputs["vpcId"], revoke_rules_on_delete=True,
            tags=self._tags("eksClusterSecurityGroup", "clusterSecurityGroupTags"), opts=self._child(),
        )  # fmt: skip
        self._rule(
            "eksClusterInternetEgressRule", group.id, type="egress", ports=(0, 0), protocol="-1", cidr_blocks=["0.0.0.0/0"]
        )
        return group

    def _node_security_group(self, cluster: "eks.Cluster", group: "ec2.SecurityGroup") -> "ec2.SecurityGroup":
        own = self._tags("nodeSecurityGroup", "nodeSecurityGroupTags")
        tags = pulumi.Output.all(own, cluster.name).apply(lambda both: {**both[0], f"kubernetes.io/cluster/{both[1]}": "owned"})
        nodes = ec2.SecurityGroup(
            f"{self._name}-nodeSecurityGroup", vpc_id=self._inputs["vpcId"], revoke_rules_on_delete=True, tags=tags,
            opts=self._child(),
        )  # fmt: skip
        self._rule("eksNodeIngressRule", nodes.id, type="ingress", ports=(0, 0), protocol="-1", self=True)
        for name, ports in (("eksNodeClusterIngressRule", (1025, 65535)), ("eksExtApiServerClusterIngressRule", (443, 443))):
            self._rule(name, nodes.id, type="ingress", ports=ports, protocol="tcp", source_security_group_id=group.id)
        self._rule("eksNodeInternetEgressRule", nodes.id, type="egress", ports=(0, 0), protocol="-1", cidr_blocks=["0.0.0.0/0"])
        self._rule("eksClusterIngressRule", group.id, type="ingress", ports=(443, 443), protocol="tcp",
                   source_security_group_id=nodes.id)  # fmt: skip
        return nodes

    def _rule(self, name: str, group_id: Any, *, ports: tuple[int, int], **more: Any) -> None:
        ec2.SecurityGroupRule(
            f"{self._name}-{name}", security_group_id=group_id, from_port=ports[0], to_port=ports[1], **more, opts=self._child()
        )

    def _kubeconfig(self, cluster: "eks.Cluster") -> pulumi.Output[Any]:
        options = self._inputs.get("providerCredentialOpts") or {}
        return pulumi.Output.all(cluster.name, cluster.endpoint, cluster.certificate_authority, cluster.arn, options).apply(
            lambda facts: kubeconfig(facts[0], facts[1], facts[2]["data"], str(facts[3]).split(":")[3], facts[4])
        )

    def _kubernetes(self, config: pulumi.Output[Any]) -> pulumi.ProviderResource:
        mutable = self._inputs.get("enableConfigMapMutable")
        more = {"enableConfigMapMutable": str(mutable).lower()} if mutable is not None else {}
        return pulumi.ProviderResource(
            "kubernetes", f"{self._name}-eks-k8s", {"kubeconfig": pulumi.Output.json_dumps(config), **more}, self._child()
        )

    def _access_entries(self, cluster: "eks.Cluster") -> "list[eks.AccessEntry]":
        made = []
        for key, entry in (self._inputs.get("accessEntries") or {}).items():
            one = eks.AccessEntry(
                f"{self._name}-{key}", cluster_name=cluster.name, principal_arn=entry["principalArn"], type=entry.get("type"),
                kubernetes_groups=entry.get("kubernetesGroups"), user_name=entry.get("username"), tags=entry.get("tags"),
                opts=self._child(cluster),
            )  # fmt: skip
            for label, policy in (entry.get("accessPolicies") or {}).items():
                eks.AccessPolicyAssociation(
                    f"{self._name}-{key}-{label}", cluster_name=cluster.name, principal_arn=entry["principalArn"],
                    policy_arn=policy["policyArn"], access_scope=policy["accessScope"],
                    opts=pulumi.ResourceOptions(parent=one, depends_on=[one]),
                )  # fmt: skip
            made.append(one)
        return made

    def _add_ons(self, cluster: "eks.Cluster", entries: "list[eks.AccessEntry]") -> None:
        if add_on_wanted(self._inputs, "kubeProxyAddonOptions"):
            self._add_on(cluster, "kube-proxy", self._inputs["kubeProxyAddonOptions"], self._child())
        if not self._inputs.get("useDefaultVpcCni"):
            options = dict(self._inputs["vpcCniOptions"])
            part = pulumi.ComponentResource("eks:index:VpcCniAddon", f"{self._name}-vpc-cni", None, self._child(*entries))
            self._add_on(cluster, "vpc-cni", {**options, "version": options["addonVersion"]}, pulumi.ResourceOptions(parent=part))
        if core_dns_wanted(self._inputs):
            self._add_on(cluster, "coredns", self._inputs["corednsAddonOptions"], self._child())

    def _add_on(self, cluster: "eks.Cluster", name: str, options: Inputs, opts: pulumi.ResourceOptions) -> None:
        values = options.get("configurationValues")
        eks.Addon(
            f"{self._name}-{name}", cluster_name=cluster.name, addon_name=name, preserve=True, tags=self._inputs.get("tags"),
            addon_version=options["version"],
            resolve_conflicts_on_create=options.get("resolveConflictsOnCreate", "OVERWRITE"),
            resolve_conflicts_on_update=options.get("resolveConflictsOnUpdate", "OVERWRITE"),
            configuration_values=pulumi.Output.json_dumps(values, sort_keys=True) if values else None,
            service_account_role_arn=options.get("serviceAccountRoleArn"), opts=opts,
        )  # fmt: skip

    def _outputs(self, cluster: "eks.Cluster", core: Object, group: Any, nodes: Any) -> Object:
        own = cluster.vpc_config.apply(lambda found: found.cluster_security_group_id)
        issuer = cluster.identities.apply(_issuer)
        given = {key: self._inputs[key] for key in ("publicSubnetIds", "privateSubnetIds", "tags") if key in self._inputs}
        empty = ("clusterIngressRuleId", "defaultNodeGroupAsgName", "fargateProfileId", "fargateProfileStatus", "oidcProviderArn")
        return {
            **dict.fromkeys((*empty, "autoModeNodeRoleName"), ""),
            "core": {
                **core, **given, "vpcId": self._inputs["vpcId"], "subnetIds": self._subnets(), "endpoint": cluster.endpoint,
                "clusterSecurityGroup": group, "instanceRoles": [], "nodeGroupOptions": {}, "storageClasses": {},
                "autoModeNodeRoleName": "",
            },
            "eksCluster": cluster, "instanceRoles": [], "clusterSecurityGroup": group, "nodeSecurityGroup": nodes,
            "kubeconfig": core["kubeconfig"], "kubeconfigJson": pulumi.Output.json_dumps(core["kubeconfig"]),
            "clusterSecurityGroupId": group.id if group else own, "nodeSecurityGroupId": nodes.id if nodes else own,
            "oidcProviderUrl": issuer, "oidcIssuer": issuer.apply(lambda url: url.replace("https://", "")),
        }  # fmt: skip


def _issuer(identities: Any) -> str:
    return str(identities[0].oidcs[0].issuer)


def add_on_wanted(inputs: Inputs, group: str) -> bool:
    return option(inputs, group, "enabled") is not False


def core_dns_wanted(inputs: Inputs) -> bool:
    """Only on request, since there is no default node group to put it on."""
    asked = option(inputs, "corednsAddonOptions", "enabled") is True
    return asked or bool(option(inputs, "corednsAddonOptions", "configurationValues"))


def option(inputs: Inputs, group: str, key: str) -> Any:
    options = inputs.get(group)
    return options.get(key) if isinstance(options, Mapping) else None


def kubeconfig(name: str, endpoint: str, certificate: str, region: str, options: Inputs) -> Object:
    """A kubeconfig that gets its token from the `aws` command, as pulumi_eks writes it."""
    arguments = ["--region", region, "eks", "get-token", "--cluster-name", name, "--output", "json"]
    arguments += ["--role", options["roleArn"]] if options.get("roleArn") else []
    arguments += ["--profile", options["profileName"]] if options.get("profileName") else []
    api = "client.authentication.k8s.io/v1beta1"
    variables = [{"name": "KUBERNETES_EXEC_INFO", "value": f'{{"apiVersion": "{api}"}}'}]
    command = {"apiVersion": api, "command": "aws", "args": arguments, "env": variables}
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "aws",
        "clusters": [{"name": "kubernetes", "cluster": {"server": endpoint, "certificate-authority-data": certificate}}],
        "contexts": [{"name": "aws", "context": {"cluster": "kubernetes", "user": "aws"}}],
        "users": [{"name": "aws", "user": {"exec": command}}],
    }  # fmt: skip


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _snake_keys(value: Any) -> Any:
    return {_snake(key): item for key, item in value.items()} if isinstance(value, Mapping) else value


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
    """Called by the SDK's servicer for Construct."""

    def __init__(self) -> None:
        super().__init__("4.4.0")

    def construct(
        self, name: str, resource_type: str, inputs: Inputs, options: pulumi.ResourceOptions | None = None
    ) -> ConstructResult:
        if resource_type != TYPE:
            raise MockError(f"{resource_type} is not served by the mock: of pulumi_eks, only {TYPE} is.")
        refuse(inputs)
        cluster = EksCluster(name, inputs, options)
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
        raise MockError(f"{TYPE}: {'; '.join(wrong)}. testing/pulumi/mocks/eks.py says what is served.")


def _unpinned(inputs: Inputs) -> list[str]:
    found = []
    if add_on_wanted(inputs, "kubeProxyAddonOptions") and not option(inputs, "kubeProxyAddonOptions", "version"):
        found.append("kubeProxyAddonOptions")
    if core_dns_wanted(inputs) and not option(inputs, "corednsAddonOptions", "version"):
        found.append("corednsAddonOptions")
    if not inputs.get("useDefaultVpcCni") and not option(inputs, "vpcCniOptions", "addonVersion"):
        found.append("vpcCniOptions.addonVersion")
    return found
