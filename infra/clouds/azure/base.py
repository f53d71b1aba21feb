"""The base of every part of a stack on Azure: its names, settings, provider and resource group."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pulumi
from pulumi_azure_native.authorization import RoleAssignment
from pulumi_azure_native.provider import Provider
from pulumi_azure_native.resources import ResourceGroup

from infra.clouds.azure import names
from infra.clouds.azure.settings import Settings
from infra.config import Stack
from infra.part import Part

# Built-in roles, by the ids that public templates have for these names; Azure's own list
# (https://learn.microsoft.com/azure/role-based-access-control/built-in-roles) was not read.
ROLES = {
    "AcrPull": "7f951dda-4ed3-4680-a7ca-43fe172d538d",
    "Azure Kubernetes Service Cluster User Role": "4abbcc35-e782-43d8-92c5-2d3f1bd2253f",
    "Network Contributor": "4d97b98b-1d4f-4787-a291-c67834d212e7",
    "Storage Blob Data Reader": "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1",
    "Virtual Machine Contributor": "9980e02c-c2be-4d73-94e8-173b1dc7cf3c",
}


def only_new(*properties: str) -> dict[str, Any]:
    """Options of a resource: these properties need a new one. Azure refuses to change them, and the provider, which does not
    know that, would try. The old one goes first, as both have the same name (the provider says so only of what it knows)."""
    return {"replace_on_changes": list(properties), "delete_before_replace": True}


@dataclass(frozen=True)
class Base:
    """`name`: ebb-<stack>, the beginning of every name."""

    stack: Stack
    settings: Settings
    name: str

    @cached_property
    def tags(self) -> dict[str, str]:
        return names.tags(self.name.removeprefix("ebb-"), self.settings)

    @cached_property
    def provider(self) -> Provider:
        return Provider("azure", subscription_id=self.settings.subscription_id, location=self.settings.location)

    @cached_property
    def group(self) -> ResourceGroup:
        """Everything but the data is in it; AKS keeps its machines in a second one, which it makes and deletes by itself."""
        return ResourceGroup(
            self.name,
            resource_group_name=self.name,
            location=self.settings.location,
            tags=self.tags,
            opts=pulumi.ResourceOptions(provider=self.provider),
        )

    def part(self, name: str) -> Part:
        return Part("azure", name, providers=[self.provider])

    def allow(
        self, part: Part, what: str, role: str, principal: pulumi.Input[str], scope: pulumi.Input[str], *, group: bool = False
    ) -> RoleAssignment:
        """A built-in role for an identity of the stack, or for an Entra group. `what`: its own name in the stack."""
        return RoleAssignment(
            f"{self.name}-{what}",
            role_assignment_name=names.assignment(f"{self.settings.subscription_id}/{self.name}", what),
            # Said, so that Entra is not asked about an identity that it may not know for a minute yet.
            principal_type="Group" if group else "ServicePrincipal",
            principal_id=principal,
            role_definition_id=(
                f"/subscriptions/{self.settings.subscription_id}/providers/Microsoft.Authorization/roleDefinitions/{ROLES[role]}"
            ),
            scope=scope,
            # https://learn.microsoft.com/azure/role-based-access-control/troubleshooting: RoleAssignmentUpdateNotPermitted
            opts=part.child(**only_new("roleDefinitionId")),
        )
