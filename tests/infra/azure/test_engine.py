"""The Azure stack on the real engine, against the echo: what the tests over all clouds do not ask."""

import pytest

from local.echo.engine import Stack
from local.echo.run import type_of
from tests.infra.azure.case import AGENT_POOL, CASE

pytestmark = pytest.mark.e2e
CLUSTER = "azure-native:containerservice:ManagedCluster"


def test_an_upgrade_of_kubernetes_updates_cluster_and_pools_and_replaces_nothing() -> None:
    with Stack("azure", CASE.values()) as stack:
        stack.up()
        stack.configure(CASE.values((("ebb:azure", "cluster", "kubernetesVersion"), "1.36")))
        run = stack.up()
        assert {(type_of(urn), done) for urn, done in run.changes.items()} == {(CLUSTER, "update"), (AGENT_POOL, "update")}
        order = [type_of(urn) for urn in run.finished("update")]
        assert order[0] == CLUSTER, "no pool may be newer than its cluster"
