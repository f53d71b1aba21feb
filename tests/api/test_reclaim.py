"""The marks of a reclaim on a Node, and what the controller reads from them."""

from typing import Any

import pytest

from ebb.api import reclaim
from ebb.api.clock import find
from ebb.api.reclaim import NOTHING, TAINT, Mark
from ebb.controller.reconciler.worker_state import has_notice, node_trouble

NOW = 1000.0
OTHER = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
NOTICE = reclaim.notice("Reclaim", "the cloud takes it (at 1980-01-01T00:00:00Z)", NOW + 30)


def node(*taints: Any, conditions: Any = ()) -> dict[str, Any]:
    return {
        "metadata": {"name": "n", "resourceVersion": "7"},
        "spec": {"taints": list(taints)} if taints else {},
        "status": {"conditions": list(conditions)},
    }


def conditioned(mark: Mark) -> dict[str, Any]:
    return node(conditions=reclaim.patch_condition(mark, NOW)["status"]["conditions"])


def test_the_controller_reads_the_deadline() -> None:
    trouble = node_trouble(conditioned(NOTICE), 0)
    assert trouble is not None
    assert (trouble.notice_until, find(NOTICE.message)) == (NOW + 30, NOW + 30)


def test_nor_does_it_find_one_where_nobody_knows() -> None:
    trouble = node_trouble(conditioned(reclaim.notice("Reclaim", "the cloud takes it", None)), 0)
    assert trouble is not None
    assert (trouble.notice_until, trouble.message) == (None, "the cloud takes it.")


@pytest.mark.parametrize("mark", [NOTHING, reclaim.calm("AtRisk", "It may go."), reclaim.calm("Planned", "It goes on Sunday.")])
def test_a_machine_that_stays_has_no_notice(mark: Mark) -> None:
    assert not has_notice(conditioned(mark))


def test_taints_come_and_go_beside_others() -> None:
    assert reclaim.patch_taints(node(OTHER), add=[TAINT]) == {
        "metadata": {"resourceVersion": "7"},
        "spec": {"taints": [OTHER, TAINT]},
    }
    assert reclaim.patch_taints(node(TAINT, OTHER), add=[TAINT])["spec"]["taints"] == [OTHER, TAINT]
    assert reclaim.patch_taints(node(TAINT, OTHER))["spec"]["taints"] == [OTHER]
    assert reclaim.patch_taints(node(TAINT))["spec"]["taints"] == []
    assert [reclaim.is_tainted(one) for one in (node(), node(OTHER), node(OTHER, TAINT))] == [False, False, True]


def test_the_autoscaler_leaves_the_taint_out_of_its_templates() -> None:
    """StatusTaintPrefix in pkg/utils/taints/taints.go of cluster-autoscaler: known to those that clouds run, too."""
    assert TAINT["key"].startswith("status-taint.cluster-autoscaler.kubernetes.io/")


def test_what_a_node_says_already() -> None:
    ready = {"type": "Ready", "status": "True"}
    without_status: dict[str, Any] = {"metadata": {}, "spec": {}}
    for bare in (node(), node(conditions=[ready]), without_status):
        assert reclaim.is_marked(bare, NOTHING)
        assert not reclaim.is_marked(bare, NOTICE)
    assert reclaim.is_marked(conditioned(NOTICE), NOTICE)
    assert not reclaim.is_marked(conditioned(NOTICE), NOTHING)
    assert reclaim.is_marked(conditioned(NOTHING), NOTHING)
