"""A small program over AWS, EKS and Kubernetes for test_engine.py; its settings say what differs from test to test."""

from pathlib import Path

PROGRAM = """
import pulumi
import pulumi_aws as aws
import pulumi_eks as eks
import pulumi_kubernetes as kubernetes

config = pulumi.Config("small")
cloud = aws.Provider("aws", region="us-west-2", default_tags={"tags": {"stack": "small"}})
network = pulumi.ComponentResource("test:index:Network", "network", opts=pulumi.ResourceOptions(providers=[cloud]))
inside = pulumi.ResourceOptions(parent=network)
vpc = aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16", opts=inside)
subnets = [
    aws.ec2.Subnet(
        f"subnet-{zone}",
        vpc_id=vpc.id,
        cidr_block=f"10.0.{number}.0/24",
        availability_zone=f"us-west-2{zone}",
        opts=inside,
    )
    for number, zone in enumerate(config.get("zones") or "ab")
]
on_aws = pulumi.ResourceOptions(provider=cloud)
role = aws.iam.Role("role", assume_role_policy="{}", opts=on_aws)
if config.get("existing"):
    aws.ec2.Vpc.get("theirs", "vpc-1", opts=on_aws)
cluster = eks.Cluster(
    "small",
    name="small",
    version="1.35",
    vpc_id=vpc.id,
    private_subnet_ids=[subnet.id for subnet in subnets],
    authentication_mode="API",
    create_oidc_provider=config.get_bool("oidc") or False,
    skip_default_node_group=True,
    skip_default_security_groups=True,
    use_default_vpc_cni=True,
    kube_proxy_addon_options=eks.KubeProxyAddonOptionsArgs(enabled=False),
    coredns_addon_options=eks.CoreDnsAddonOptionsArgs(enabled=False),
    service_role=role,
    opts=pulumi.ResourceOptions(providers=[cloud]),
)
template = aws.ec2.LaunchTemplate(
    "template",
    block_device_mappings=[{"device_name": "/dev/xvda", "ebs": {"volume_size": config.get_int("disk") or 100}}],
    opts=on_aws,
)
group = aws.eks.NodeGroup(
    "group",
    cluster_name=cluster.eks_cluster.name,
    node_role_arn=role.arn,
    subnet_ids=[subnets[0].id],
    capacity_type=config.get("capacity") or "SPOT",
    scaling_config={"desired_size": config.get_int("desired") or 0, "min_size": 0, "max_size": config.get_int("max") or 2},
    launch_template={"id": template.id, "version": template.latest_version.apply(str)},
    opts=pulumi.ResourceOptions(provider=cloud, ignore_changes=["scalingConfig.desiredSize"]),
)
aws.autoscaling.Tag(
    "tag",
    autoscaling_group_name=group.resources[0].autoscaling_groups[0].name,
    tag={"key": "a", "value": "b", "propagate_at_launch": False},
    opts=on_aws,
)
files = aws.efs.FileSystem("files", opts=pulumi.ResourceOptions(provider=cloud, retain_on_delete=True))
api = kubernetes.Provider("api", kubeconfig=cluster.kubeconfig_json, cluster_identifier="small", enable_config_map_mutable=True)
space = kubernetes.core.v1.Namespace(
    "space", metadata={"name": "space"}, opts=pulumi.ResourceOptions(provider=api, depends_on=[group])
)
kubernetes.core.v1.ConfigMap(
    "facts",
    metadata={"name": "facts", "namespace": "space"},
    data={"max": str(config.get_int("max") or 2), "password": config.get_secret("password") or ""},
    opts=pulumi.ResourceOptions(provider=api, depends_on=[space]),
)
pulumi.export("cluster", cluster.eks_cluster.name)
pulumi.export("securityGroup", cluster.eks_cluster.vpc_config.cluster_security_group_id)
pulumi.export("endpoint", cluster.core.endpoint)
pulumi.export("kubeconfig", cluster.kubeconfig_json)
"""


def write_program(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Pulumi.yaml").write_text("name: small\nruntime: python\n")
    (folder / "__main__.py").write_text(PROGRAM)
    return folder
