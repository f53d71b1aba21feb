"""A rehearsal's reclaim on Azure: a simulated eviction of the Node's instance in its scale set."""

import pytest

from infra.clouds.azure import reclaim
from infra.clouds.azure.rest import Refused
from tests.infra.azure import stacks
from tests.infra.azure.fake_arm import FakeArm

PATH = "/resourceGroups/ebb-azure-machines/providers/Microsoft.Compute/virtualMachineScaleSets/aks-st41-1-vmss/virtualMachines/0"


def test_the_eviction_is_of_the_nodes_instance() -> None:
    node = f"azure:///subscriptions/{stacks.SUBSCRIPTION}{PATH}"
    with FakeArm({("POST", f"{PATH}/simulateEviction"): {}}) as azure:
        assert reclaim.reclaim("azure", stacks.stack(), node, azure.arm()) == "eviction of instance 0"
        assert [(method, path) for method, path, _, _ in azure.seen] == [("POST", f"{PATH}/simulateEviction")]


def test_a_machine_that_is_of_no_scale_set_is_refused() -> None:
    with pytest.raises(Refused, match="is 'azure:///nothing', and not that of an instance of a scale set"):
        reclaim.reclaim("azure", stacks.stack(), "azure:///nothing")
