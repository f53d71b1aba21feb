"""The mock of pulumi-resource-azure-native: checks inputs by the installed SDK, says what replaces, makes up Azure's answers.

What it knows of a type is one row of tables/azure.py, which says where that comes from and what is not proven. The one look-up
that it answers is that of a cluster's kubeconfig for users, which AKS shows nowhere else.
"""

import base64
import json
from dataclasses import replace

from testing.pulumi.mocks.package import UNKNOWN, Asked, Difference, Object
from testing.pulumi.mocks.tabled import Tabled
from testing.pulumi.mocks.tables.azure import ROWS

CREDENTIALS = "azure-native:containerservice:listManagedClusterUserCredentials"
STABLE = ("name", "location")  # outputs of which the provider is sure that no update changes them


class Azure(Tabled):
    """One configured provider: its subscription goes into every id."""

    needed = ("subscriptionId", "location")

    def __init__(self) -> None:
        self._own = {row.token: row for row in ROWS}
        super().__init__("azure-native", self._own, {CREDENTIALS: _credentials})

    def diff(self, asked: Asked, old: Object, outputs: Object, new: Object) -> Difference:
        """Replacements follow rules of the provider's own. Then it always deletes first (provider.go, Diff)."""
        found = super().diff(asked, old, outputs, new)
        forces = self._own[asked.token].forces
        replaces = tuple(path for path, change in found.changes.items() if forces(path, change))
        return replace(found, replaces=replaces, delete_first=bool(replaces))

    def create(self, asked: Asked, inputs: Object, *, preview: bool) -> tuple[str, Object]:
        made, outputs = super().create(asked, inputs, preview=preview)
        return made, _with_identity_map(outputs)

    def update(self, asked: Asked, outputs: Object, old: Object, new: Object, *, preview: bool) -> Object:
        """Made-up values stay, also where an input of that name could have given it: a cluster's identityProfile. A preview
        knows inputs alone, and STABLE (provider.go, Update)."""
        made_up = {name: outputs[name] for name in self._own[asked.token].outputs if name in outputs}
        found = _with_identity_map({**made_up, **super().update(asked, outputs, old, new, preview=preview)})
        return {name: value if name in {*new, *STABLE} else UNKNOWN for name, value in found.items()} if preview else found

    def own_facts(self) -> dict[str, str]:
        return {"subscription": str(self.settings.get("subscriptionId"))}


def _with_identity_map(outputs: Object) -> Object:
    """Identities go in as a list of ids, and come back as a map from them."""
    identity = outputs.get("identity")
    if not isinstance(identity, dict) or not isinstance(identity.get("userAssignedIdentities"), list):
        return outputs
    found: Object = {one: {} for one in identity["userAssignedIdentities"]}
    return {**outputs, "identity": {**identity, "userAssignedIdentities": found}}


def _credentials(arguments: Object) -> Object:
    """As AKS gives it out: YAML, of which JSON is a part, in base64."""
    name = str(arguments["resourceName"])
    server = {"server": f"https://{name}.hcp.azmk8s.io:443", "certificate-authority-data": "ZWNobw=="}
    kubeconfig = {"apiVersion": "v1", "kind": "Config", "clusters": [{"name": name, "cluster": server}]}
    return {"kubeconfigs": [{"name": "clusterUser", "value": base64.b64encode(json.dumps(kubeconfig).encode()).decode()}]}


def package() -> Azure:
    return Azure()
