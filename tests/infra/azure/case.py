"""Azure for the tests that run over all clouds."""

from tests.infra.azure.answers import ANSWERS
from tests.infra.cases import Case

NETWORK, SUBNET = "azure-native:network:VirtualNetwork", "azure-native:network:Subnet"
AGENT_POOL, ENDPOINT = "azure-native:containerservice:AgentPool", "azure-native:network:PrivateEndpoint"
CLUSTER = "azure-native:containerservice:ManagedCluster"
CASE = Case(
    cloud="azure",
    stack="azure",
    package="azure-native",
    provider="azure",
    least=80,
    network=NETWORK,
    subnet=SUBNET,
    control_plane=CLUSTER,
    node_group=AGENT_POOL,
    file_system="azure-native:storage:FileShare",
    mounts=ENDPOINT,
    max_key="maxCount",
    bought_key="agentPoolName",  # the capacity is in the pool's name; the provider alone would try an update, which Azure refuses
    further_zone="westus2-3",
    further_updates=("cluster-autoscaler-priority-expander", "ebb-platform"),
    further_creates=frozenset((AGENT_POOL,)),
    cidr=(("ebb:azure", "network", "cidr"), "10.96.0.0/16"),
    cidr_replaces=frozenset((NETWORK, SUBNET, AGENT_POOL, ENDPOINT)),
    data=("ebb:azure", "storage", "data"),
    wrong=(("ebb:azure", "cluster", "authorizedRanges"), [], "authorizedRanges"),
    later=(
        (ENDPOINT, SUBNET),  # a subnet with an address in it cannot go
        (CLUSTER, "azure-native:network:NatGateway"),  # machines that are ended still speak to Azure
        (CLUSTER, "azure-native:managedidentity:UserAssignedIdentity"),  # by which AKS gives the machines' addresses back
    ),
    smallest={"T4": "Standard_NC4as_T4_v3", "a100": "Standard_ND96asr_v4", "A10": "Standard_NV36ads_A10_v5",
              "H100": "Standard_ND96isr_H100_v5"},
    answers=ANSWERS,
    fast={"gpu": "H100", "max": 2, "azure": {"infiniband": True}},
)  # fmt: skip
