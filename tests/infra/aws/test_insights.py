"""Container Insights, with `monitoring.managed`."""

import json
from functools import cache
from typing import Any

from infra import config, program
from infra.clouds.aws.cloud import Aws
from infra.config import ROOT
from tests.infra.aws import stacks
from tests.infra.aws.case import CASE
from tests.infra.declared import Declared, declared
from tests.infra.stacks import problems

ADD_ON = "amazon-cloudwatch-observability"


def wanted(**pins: str) -> dict[str, Any]:
    own = stacks.small()
    cluster = own["aws"]["cluster"]
    return {
        **own,
        "monitoring": {"managed": True},
        "aws": {**own["aws"], "cluster": {**cluster, "addOns": {**cluster["addOns"], **pins}}},
    }


@cache
def world() -> Declared:
    stack = config.parse(wanted(**{ADD_ON: "v5.2.0-eksbuild.1"}), ROOT)
    return declared(lambda: program.declare(stack, Aws(stack, stack.settings)), answers=CASE.answers)


def test_the_add_on_collects_gpus_and_ships_no_logs() -> None:
    (made,) = [one for one in world().all("Addon") if one.inputs["addonName"] == ADD_ON]
    assert made.inputs["addonVersion"] == "v5.2.0-eksbuild.1"
    values = json.loads(made.inputs["configurationValues"])
    kubernetes = values["agent"]["config"]["logs"]["metrics_collected"]["kubernetes"]
    assert kubernetes == {"enhanced_container_insights": True, "accelerated_compute_metrics": True}
    assert values["containerLogs"] == {"enabled": False}
    manager = next(one for one in world().all("aws:eks/nodeGroup:NodeGroup") if "manager" in one.name)
    assert manager.key in world().before(made)


def test_its_figures_are_kept_for_a_while_and_go_with_the_stack() -> None:
    (made,) = [one for one in world().all("Addon") if one.inputs["addonName"] == ADD_ON]
    group = next(one for one in world().all("LogGroup") if "containerinsights" in one.inputs["name"])
    assert group.inputs["retentionInDays"] == 30
    assert not group.retain_on_delete
    assert group.key in world().before(made), "or the agent would make it, for ever"


def test_it_may_write_there_and_nowhere_else() -> None:
    (made,) = [one for one in world().all("Addon") if one.inputs["addonName"] == ADD_ON]
    assert [one["serviceAccount"] for one in made.inputs["podIdentityAssociations"]] == ["cloudwatch-agent"]
    policy = next(one for one in world().all("RolePolicy") if one.name.endswith("-insights"))
    writes = [one for one in json.loads(policy.inputs["policy"])["Statement"] if "logs:PutLogEvents" in one["Action"]]
    (group,) = [one.inputs["name"] for one in world().all("LogGroup") if "containerinsights" in one.inputs["name"]]
    for one in writes:
        for resource in [one["Resource"]] if isinstance(one["Resource"], str) else one["Resource"]:
            assert resource.partition(":log-group:")[2].startswith(group.rpartition("/")[0])


def test_people_are_led_there() -> None:
    facts = json.loads(world().one("ConfigMap", "ebb-platform").inputs["data"]["platform.json"])
    assert facts["dashboards"]["Container Insights"].startswith("https://us-west-2.console.aws.amazon.com/cloudwatch/")


def test_its_version_is_pinned() -> None:
    (text,) = problems(wanted())
    assert text.startswith(f"aws.cluster.addOns.{ADD_ON}: missing: pin a version")
