"""Gives the pods of one service account a role: EKS Pod Identity.

    link = pod_identity.associate(part, control, "kube-system", "cluster-autoscaler", identity.role(part, name, "autoscaler"))

A pod gets its credentials when it is created: one that came before the association would have none, however often it restarts. So
whatever makes the pods waits for what is returned.
"""

from pulumi_aws import eks

from infra.clouds.aws.control.cluster import ControlPlane
from infra.clouds.aws.iam.identity import Role
from infra.part import Part


def associate(
    part: Part, control: ControlPlane, namespace: str, account: str, role: Role, *, suffix: str = ""
) -> eks.PodIdentityAssociation:
    """`suffix`: of its name, where the account has one in several namespaces."""
    return eks.PodIdentityAssociation(
        f"{account}{suffix}",
        cluster_name=control.name,
        namespace=namespace,
        service_account=account,
        role_arn=role.arn,
        opts=part.child(depends_on=control.ready),
    )
