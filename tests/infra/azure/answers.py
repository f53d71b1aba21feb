"""What only Azure computes, for declarations by mocks."""

import base64
import json
from collections.abc import Mapping

from tests.infra.declared import Answer

IDENTITY, KUBELET = "id-control-plane", "id-kubelet"
ISSUER = "https://westus2.oic.prod-aks.azure.com/one/"
KUBECONFIG = {
    "clusters": [{"name": "c", "cluster": {"server": "https://ebb-dev.hcp.azmk8s.io:443", "certificate-authority-data": "Q0E="}}],
    "users": [{"name": "clusterUser", "user": {"token": "secret"}}],
}


def named(key: str) -> Answer:
    """A resource of Azure: its name is an input of another name."""
    return lambda name, inputs: {"name": inputs[key]}


ANSWERS: Mapping[str, Answer] = {
    **{
        f"azure-native:{kind}": named(key)
        for kind, key in {
            "resources:ResourceGroup": "resourceGroupName",
            "network:VirtualNetwork": "virtualNetworkName",
            "privatedns:PrivateZone": "privateZoneName",
            "storage:StorageAccount": "accountName",
            "storage:FileShare": "shareName",
        }.items()
    },
    "azure-native:network:PublicIPAddress": lambda name, inputs: {"name": name, "ipAddress": "203.0.113.9"},
    "azure-native:managedidentity:UserAssignedIdentity": lambda name, inputs: {
        "name": inputs["resourceName"],
        "principalId": IDENTITY if name.endswith("control-plane") else f"id-{name}",
        "clientId": f"client-{name}",
    },
    "azure-native:network:PrivateEndpoint": lambda name, inputs: {
        "name": inputs["privateEndpointName"],
        "customDnsConfigs": [],  # as soon as a zone group is attached: see testing/pulumi/mocks/tables/azure.py
    },
    "azure-native:network:PrivateDnsZoneGroup": lambda name, inputs: {
        "privateDnsZoneConfigs": [
            {**one, "recordSets": [{"recordType": "A", "ipAddresses": ["10.80.255.228"], "provisioningState": "Succeeded"}]}
            for one in inputs["privateDnsZoneConfigs"]
        ],
    },
    "azure-native:containerservice:ManagedCluster": lambda name, inputs: {
        "name": inputs["resourceName"],
        "identityProfile": {"kubeletidentity": {"objectId": KUBELET, "clientId": "client-kubelet"}},
        "oidcIssuerProfile": {"enabled": True, "issuerURL": ISSUER},
        # A list on the way in, a map on the way out: so Azure has it, and the SDK's types.
        "identity": {
            "type": "UserAssigned",
            "userAssignedIdentities": {one: {} for one in inputs["identity"]["userAssignedIdentities"]},
        },
    },
    "azure-native:containerregistry:Registry": lambda name, inputs: {
        "name": inputs["registryName"],
        "loginServer": f"{inputs['registryName']}.azurecr.io",
    },
    "azure-native:containerservice:listManagedClusterUserCredentials": lambda name, inputs: {
        "kubeconfigs": [{"name": "clusterUser", "value": base64.b64encode(json.dumps(KUBECONFIG).encode()).decode()}]
    },
    "command:local:Command": lambda name, inputs: {"stdout": json.dumps({"digest": f"sha256:{name}", "compressed_mb": 12.5})},
    "docker-build:index:Image": lambda name, inputs: {"digest": f"sha256:{name}"},
}
