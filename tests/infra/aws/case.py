"""AWS for the tests that run over all clouds."""

import json
from collections.abc import Mapping

from tests.infra.cases import Case
from tests.infra.declared import Answer

SUBNET, VPC = "aws:ec2/subnet:Subnet", "aws:ec2/vpc:Vpc"
NODE_GROUP, MOUNT_TARGET = "aws:eks/nodeGroup:NodeGroup", "aws:efs/mountTarget:MountTarget"
DIGEST = "sha256:" + "a" * 64
ANSWERS: Mapping[str, Answer] = {
    "command:local:Command": lambda name, inputs: {"stdout": json.dumps({"digest": DIGEST, "compressed_mb": 3456.8})},
    "docker-build:index:Image": lambda name, inputs: {"digest": DIGEST},
}
CASE = Case(
    cloud="aws",
    stack="dev",
    package="aws",
    provider="aws",
    least=150,
    network=VPC,
    subnet=SUBNET,
    control_plane="aws:eks/cluster:Cluster",
    node_group=NODE_GROUP,
    file_system="aws:efs/fileSystem:FileSystem",
    mounts=MOUNT_TARGET,
    max_key="scalingConfig.maxSize",
    bought_key="capacityType",
    further_zone="us-west-2d",
    further_updates=("cluster-autoscaler-priority-expander", "ebb-dev-s3", "ebb-platform"),
    further_creates=frozenset((NODE_GROUP, SUBNET, MOUNT_TARGET)),
    cidr=(("ebb:aws", "network", "cidr"), "10.80.0.0/16"),
    cidr_replaces=frozenset((VPC, SUBNET)),
    data=("ebb:aws", "storage", "data"),
    wrong=(("ebb:aws", "cluster", "publicAccessCidrs"), [], "publicAccessCidrs"),
    later=((MOUNT_TARGET, SUBNET),),
    smallest={"T4": "g4dn.xlarge", "V100": "p3.2xlarge", "a100": "p4d.24xlarge", "H100": "p5.4xlarge"},
    answers=ANSWERS,
    fast={"instanceTypes": ["p4d.24xlarge"], "capacity": "on-demand", "max": 2, "aws": {"efa": True}},
)
