"""Azure for the tests that run over all clouds."""

from tests.infra.azure.answers import ANSWERS
from tests.infra.cases import Case

NETWORK, SUBNET = "azure-native:network:VirtualNetwork", "azure-native:network:Subnet"
AGENT_POOL, ENDPOINT = "azure-native:containerservice:AgentPool", "azure-native:network:PrivateEndpoint"
CASE = Case(
    cloud="azure",
    stack="azure",
    package="azure-native",
    provider="azure",
    least=90,
    network=NETWORK,
    subnet=SUBNET,
    control_plane="azure-native:containerservice:ManagedCluster",
    node_group=AGENT_POOL,
    file_system="azure-native:storage:FileShare",
    mounts=ENDPOINT,
    max_key="maxCount",
    bought_key="agentPoolName",  # the capacity is in the pool's name; the provider alone would try an update, which Azure refuses
    further_zone="westus2-3",
    further_updates=("cluster-autoscaler-priority-expander", "ebb-platform"),
    further_creates=frozenset((AGENT_POOL,)),
    cidr=(("ebb:azure", "network", "cidr"), "10.96.0.0/16"),
    cidr_replaces=frozenset((NETWORK, SUBNET)),
    data=("ebb:azure", "storage", "data"),
    wrong=(("ebb:azure", "cluster", "authorizedRanges"), [], "authorizedRanges"),
    later=((ENDPOINT, SUBNET), ("azure-native:authorization:RoleAssignment", "azure-native:resources:ResourceGroup")),
    smallest={"T4": "Standard_NC4as_T4_v3", "a100": "Standard_ND96asr_v4", "A10": "Standard_NV36ads_A10_v5",
              "H100": "Standard_ND96isr_H100_v5"},
    answers=ANSWERS,
)  # fmt: skip
