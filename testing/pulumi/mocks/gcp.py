"""The mock of pulumi-resource-gcp: checks inputs by the installed SDK, says what replaces, makes up what Google would answer.

What it knows of a type is one row of tables/gcp.py, which says where that comes from and what is not proven.
"""

from collections.abc import Mapping
from typing import Any

from testing.pulumi.mocks import wheel
from testing.pulumi.mocks.package import Object
from testing.pulumi.mocks.rows import Reviewed
from testing.pulumi.mocks.tabled import Tabled
from testing.pulumi.mocks.tables.gcp import ROWS

PROJECT = "gcp:organizations/getProject:getProject"


class Gcp(Tabled):
    """One configured provider: its project, region and default labels go into every answer."""

    needed = ("project", "region")
    known_in_preview = ("effectiveLabels", "pulumiLabels", "project", "region")

    def __init__(self) -> None:
        super().__init__("gcp", {row.token: row for row in ROWS}, {PROJECT: _project})

    def further_changes(self, outputs: Object, new: Object, changes: Mapping[str, str]) -> Mapping[str, Any]:
        """The provider's default labels have changed."""
        moved = "pulumiLabels" in outputs and outputs["pulumiLabels"] != self._all_labels(new)
        return {"pulumiLabels": "update"} if moved and not any(path.startswith("labels") for path in changes) else {}

    def own_outputs(self, row: Reviewed, given: Object) -> Object:
        labels, known = self._all_labels(given), wheel.outputs_of(row.token)
        own = {"effectiveLabels": labels, "pulumiLabels": labels}
        own |= {name: given.get(name, self.settings.get(name)) for name in ("project", "region")}
        return {name: value for name, value in own.items() if name in known}

    def own_facts(self) -> dict[str, str]:
        return {name: str(self.settings.get(name)) for name in ("project", "region")}

    def _all_labels(self, given: Object) -> Any:
        labels, default = given.get("labels") or {}, self.settings.get("defaultLabels") or {}
        return {**default, **labels} if isinstance(labels, dict) and isinstance(default, dict) else labels


def _project(arguments: Object) -> Object:
    """The number, which is a project's own for ever."""
    project = str(arguments["projectId"])
    return {"id": f"projects/{project}", "number": "123456789012", "projectId": project}


def package() -> Gcp:
    return Gcp()
