"""A stack for tests of network and control plane, as its file would say it, and the two declared."""

from functools import cache
from typing import Any

import pulumi
from pulumi_aws import ec2
from pulumi_aws.provider import Provider as AwsProvider

from infra import config
from infra.clouds.aws import network
from infra.clouds.aws.control import addons, cluster
from infra.config import ROOT, Stack
from infra.part import Part
from tests.infra.declared import Declared, declared

PLATFORM, RESEARCH = "arn:aws:iam::111122223333:role/platform", "arn:aws:iam::111122223333:role/team/research"
ADD_ONS = {
    "vpc-cni": "v1.21.1-eksbuild.1",
    "kube-proxy": "v1.35.0-eksbuild.2",
    "coredns": "v1.13.1-eksbuild.1",
    "eks-pod-identity-agent": "v1.3.10-eksbuild.2",
    "aws-ebs-csi-driver": "v1.55.0-eksbuild.2",
    "aws-efs-csi-driver": "v3.4.1-eksbuild.1",
    "metrics-server": "v0.8.0-eksbuild.6",
    "eks-node-monitoring-agent": "v1.7.0-eksbuild.1",
}
ZONES = ("us-west-2a", "us-west-2b")
EXISTING = {
    "vpcId": "vpc-0123456789abcdef0",
    "privateSubnets": {"us-west-2a": "subnet-0123456789abcdefa", "us-west-2b": "subnet-0123456789abcdefb"},
}


def stack(
    *,
    zones: tuple[str, ...] = ZONES,
    network: dict[str, Any] | None = None,
    storage: dict[str, Any] | None = None,
    **control: Any,
) -> Stack:
    """`network`, `storage` and `control` in the file's own words."""
    own = {
        "publicAccessCidrs": ["203.0.113.0/24"],
        "administrators": [PLATFORM],
        "researchers": [RESEARCH],
        "addOns": ADD_ONS,
        **control,
    }
    return config.parse(
        {
            "cloud": "aws",
            "zones": list(zones),
            "manager": {"zone": "us-west-2a", "instanceType": "m7i.large"},
            "aws": {
                "region": "us-west-2",
                "network": network or {},
                "cluster": {key: value for key, value in own.items() if value is not None},
                "nodes": {"releases": {"AL2023_x86_64_STANDARD": "1.35.0-20260318"}},
                "storage": storage or {"efs": {}},
            },
        },
        ROOT,
    )


@cache
def usual() -> Declared:
    """The usual stack, declared once for all that only look at it."""
    return world(stack())


def world(given: Stack) -> Declared:
    """Network, control plane, a manager group and what needs it. What the control plane tells is in `returned`."""

    def declare() -> dict[str, Any]:
        provider = AwsProvider("aws", region="us-west-2")
        made = network.declare("ebb-dev", given, given.settings, provider)
        control = cluster.declare("ebb-dev", given.settings, made, provider)
        manager = ec2.LaunchTemplate("manager", opts=pulumi.ResourceOptions(provider=provider, depends_on=control.ready))
        part = Part("aws", "add-ons", providers=[provider])
        addons.after_manager(part, "ebb-dev", control.name, given.settings, manager, control.kubernetes)
        return {
            "name": control.name,
            "arn": control.arn,
            "endpoint": control.endpoint,
            "securityGroup": control.security_group_id,
            "kubeconfig": control.kubeconfig,
            "researcherKubeconfig": control.researcher_kubeconfig,
            "researcherCommand": control.researcher_command,
            "private": dict(made.private),
            "public": dict(made.public),
            "vpc": made.vpc_id,
        }

    return declared(declare)
