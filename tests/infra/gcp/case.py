"""Google Cloud for the tests that run over all clouds."""

from collections.abc import Mapping

from tests.infra.cases import Case
from tests.infra.declared import Answer

NETWORK, SUBNET = "gcp:compute/network:Network", "gcp:compute/subnetwork:Subnetwork"
CLUSTER, POOL, FILESTORE = "gcp:container/cluster:Cluster", "gcp:container/nodePool:NodePool", "gcp:filestore/instance:Instance"
# What only Google computes, for declarations by mocks.
ANSWERS: Mapping[str, Answer] = {
    "gcp:container/cluster:Cluster": lambda name, inputs: {
        "endpoint": "192.0.2.10",
        "masterVersion": f"{inputs['minMasterVersion']}.9-gke.1000000",  # of an alias such as 1.35 the newest patch
        "masterAuth": {"clusterCaCertificate": "Q0E="},
    },
    "gcp:filestore/instance:Instance": lambda name, inputs: {
        "networks": [{**inputs["networks"][0], "ipAddresses": ["10.0.0.2"]}],
    },
    "gcp:lustre/instance:Instance": lambda name, inputs: {"mountPoint": "10.1.0.2@tcp:/ebb"},
    "gcp:serviceaccount/account:Account": lambda name, inputs: {
        "email": f"{inputs['accountId']}@my-project-123.iam.gserviceaccount.com",
    },
    "gcp:projects/serviceIdentity:ServiceIdentity": lambda name, inputs: {
        "member": "serviceAccount:service-1@container-engine-robot.iam.gserviceaccount.com",
    },
    "gcp:organizations/getProject:getProject": lambda name, inputs: {"number": "123456789012"},
    "gcp:compute/network:Network": lambda name, inputs: {"name": name},
    "gcp:compute/disk:Disk": lambda name, inputs: {"name": name},
    "gcp:compute/router:Router": lambda name, inputs: {"name": name},
    "gcp:compute/resourcePolicy:ResourcePolicy": lambda name, inputs: {"name": name},
    "gcp:compute/globalAddress:GlobalAddress": lambda name, inputs: {"name": name},
    "gcp:storage/bucket:Bucket": lambda name, inputs: {"name": name},
    "gcp:artifactregistry/repository:Repository": lambda name, inputs: {"name": inputs["repositoryId"]},
    "docker-build:index:Image": lambda name, inputs: {"digest": "sha256:" + "a" * 64},
    "command:local:Command": lambda name, inputs: {"stdout": '{"digest": "sha256:' + "a" * 64 + '"}'},
}
CASE = Case(
    cloud="gcp",
    stack="gcp",
    package="gcp",
    provider="gcp",
    least=80,
    network=NETWORK,
    subnet=SUBNET,
    control_plane=CLUSTER,
    node_group=POOL,
    file_system=FILESTORE,
    max_key="autoscaling.maxNodeCount",
    bought_key="nodeConfig.spot",
    further_zone="us-central1-f",
    further_updates=("ebb-platform",),
    further_creates=frozenset((POOL,)),
    cidr=(("ebb:gcp", "network", "cidr"), "10.80.0.0/20"),
    cidr_replaces=frozenset((SUBNET, CLUSTER, POOL)),
    data=("ebb:gcp", "storage", "data"),
    wrong=(("ebb:gcp", "cluster", "authorizedCidrs"), [], "authorizedCidrs"),
    later=((FILESTORE, NETWORK),),
    smallest={"T4": "n1-standard-4-t4", "V100": "n1-standard-8-v100", "a100": "a2-highgpu-1g", "H100": "a3-highgpu-1g"},
    answers=ANSWERS,
    fast={"gpu": "H200", "max": 2, "gcp": {"gpuDirect": True}},
)
