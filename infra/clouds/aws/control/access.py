"""Access entries and kubeconfigs: rights in the cluster, and ways to connect.

Administrators have EKS's cluster-admin policy. Researchers take one IAM role, which may only look up the cluster's address; the
cluster puts whoever comes with it into the group `ebb:researchers`, and workloads/manifests/researcher.yaml says what that may.
Who runs the first `pulumi up` is an administrator in any case: EKS gives them an entry of its own, so an entry here for the same
principal would clash with it.

No kubeconfig holds a secret: each asks the AWS CLI for a token of the hour.
"""

from collections.abc import Sequence

import pulumi
from pulumi_aws import eks, iam

from infra.clouds.aws.iam import identity
from infra.part import Part

ADMINISTRATOR = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
RESEARCHERS = "ebb:researchers"  # as in workloads/manifests/researcher.yaml


def administrators(part: Part, name: str, cluster: pulumi.Input[str], principals: Sequence[str]) -> list[pulumi.Resource]:
    """All rights in the whole cluster."""
    made: list[pulumi.Resource] = []
    for principal in principals:
        logical = f"{name}-{_short(principal)}"
        entry = eks.AccessEntry(logical, cluster_name=cluster, principal_arn=principal, type="STANDARD", opts=part.child())
        policy = eks.AccessPolicyAssociation(
            logical,
            cluster_name=cluster,
            principal_arn=entry.principal_arn,
            policy_arn=ADMINISTRATOR,
            access_scope={"type": "cluster"},
            opts=part.child(depends_on=[entry]),
        )
        made += [entry, policy]
    return made


def researchers(
    part: Part, name: str, cluster: pulumi.Input[str], arn: pulumi.Input[str], principals: Sequence[str]
) -> tuple[iam.Role, pulumi.Resource]:
    """The role that `principals` may take, and its entry in the cluster (`arn`: the cluster's)."""
    role = identity.role(part, name, "researcher", researchers=principals, cluster=arn)
    entry = eks.AccessEntry(
        f"{name}-researcher",
        cluster_name=cluster,
        principal_arn=role.arn,
        type="STANDARD",
        kubernetes_groups=[RESEARCHERS],
        opts=part.child(),
    )
    return role, entry


def kubeconfig(
    name: str,
    region: str,
    endpoint: pulumi.Input[str],
    certificate_authority: pulumi.Input[str],
    role_arn: pulumi.Input[str] | None = None,
) -> pulumi.Output[str]:
    """As JSON, which is YAML too. Without a role it is for whoever the AWS CLI is signed in as."""
    words = ["--region", region, "eks", "get-token", "--cluster-name", name, "--output", "json"]
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "aws",
        "args": [*words, *(["--role-arn", role_arn] if role_arn is not None else [])],
    }
    server = {"server": endpoint, "certificate-authority-data": certificate_authority}
    return pulumi.Output.json_dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": server}],
            "users": [{"name": name, "user": {"exec": plugin}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )


def command(name: str, region: str, role_arn: pulumi.Input[str]) -> pulumi.Output[str]:
    """The command that a researcher types once: it writes such a kubeconfig into their own.

    The role stands in it twice: --role-arn is for the kubeconfig alone, and --assume-role-arn for the look at the cluster, to
    which their own identity may have no right
    (https://github.com/aws/aws-cli/issues/8554 and pull/9447, in the AWS CLI since spring 2025; read 2026-11-21).
    """
    words = f"aws eks update-kubeconfig --name {name} --region {region} --alias {name} --assume-role-arn "
    return pulumi.Output.concat(words, role_arn, " --role-arn ", role_arn)


def _short(principal: str) -> str:
    """arn:aws:iam::111122223333:role/platform -> 111122223333-role-platform"""
    return "-".join(principal.split(":")[4:]).replace("/", "-")
