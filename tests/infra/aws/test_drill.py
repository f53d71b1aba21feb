"""The drill: what FIS is told, and the command that starts it."""

import json
from typing import Any

from infra.clouds.aws.machines import drill, machine
from infra.part import Part
from tests.infra.aws import api
from tests.infra.aws.groups import group, settings
from tests.infra.declared import Declared, declared

ALARM = "arn:aws:cloudwatch:us-west-2:111122223333:alarm:loss"


def world(**section: Any) -> Declared:
    given = settings(drill={"group": "spot-t4-us-west-2a", **section})
    return declared(lambda: drill.declare(Part("aws", "drill"), "ebb-dev", given))


def test_without_the_section_there_is_none() -> None:
    found = declared(lambda: drill.declare(Part("aws", "drill"), "ebb-dev", settings()))
    assert found.returned is None
    assert not found.all("ExperimentTemplate")


def test_the_template_in_full() -> None:
    inputs = world(machines=2).one("ExperimentTemplate").inputs
    assert inputs == {
        "roleArn": "arn:aws:iam::111122223333:role/ebb-dev-drill",
        "description": "Reclaims 2 spot machine(s) of spot-t4-us-west-2a in ebb-dev, with notice",
        "actions": [
            {
                "name": "reclaim",
                "actionId": "aws:ec2:send-spot-instance-interruptions",
                "parameters": [{"key": "durationBeforeInterruption", "value": "PT2M"}],
                "target": {"key": "SpotInstances", "value": "machines"},
            }
        ],
        "targets": [
            {
                "name": "machines",
                "resourceType": "aws:ec2:spot-instance",
                "resourceTags": [
                    {"key": "ebb.dev/stack", "value": "dev"},
                    {"key": "ebb.dev/node-group", "value": "spot-t4-us-west-2a"},
                ],
                "filters": [{"path": "State.Name", "values": ["running"]}],
                "selectionMode": "COUNT(2)",
            }
        ],
        "stopConditions": [{"source": "none"}],
        "experimentOptions": {"accountTargeting": "single-account", "emptyTargetResolutionMode": "fail"},
        "tags": {"Name": "ebb-dev-drill"},
    }


def test_an_alarm_stops_it() -> None:
    found = world(stopAlarmArn=ALARM).one("ExperimentTemplate").inputs
    assert found["stopConditions"] == [{"source": "aws:cloudwatch:alarm", "value": ALARM}]


def test_its_role_may_take_the_machines_of_that_group_alone() -> None:
    policy = json.loads(world().one("RolePolicy").inputs["policy"])
    reclaims = next(one for one in policy["Statement"] if one["Action"] == ["ec2:SendSpotInstanceInterruptions"])
    asked = {key.removeprefix("aws:ResourceTag/"): value for key, value in reclaims["Condition"]["StringEquals"].items()}
    assert asked == {"ebb.dev/stack": "dev", "ebb.dev/node-group": "spot-t4-us-west-2a"}
    assert asked.items() <= machine.machine_tags("dev", group(), settings()).items()


def test_it_finds_the_machines_by_tags_that_they_carry() -> None:
    (target,) = world().one("ExperimentTemplate").inputs["targets"]
    asked = {each["key"]: each["value"] for each in target["resourceTags"]}
    assert asked.items() <= machine.machine_tags("dev", group(), settings()).items()
    assert not asked.items() <= machine.machine_tags("test", group(), settings()).items()
    assert not asked.items() <= machine.machine_tags("dev", group("spot-t4-us-west-2b"), settings()).items()


def test_its_command_names_region_and_template() -> None:
    assert world().returned == "aws fis start-experiment --region us-west-2 --experiment-template-id ExperimentTemplate-drill"


def test_fis_takes_it() -> None:
    inputs = world(stopAlarmArn=ALARM).one("ExperimentTemplate").inputs
    actions, targets = inputs.pop("actions"), inputs.pop("targets")
    asked = {
        **inputs,
        "clientToken": "token",
        "actions": {
            each["name"]: {
                "actionId": each["actionId"],
                "parameters": {one["key"]: one["value"] for one in each["parameters"]},
                "targets": {each["target"]["key"]: each["target"]["value"]},
            }
            for each in actions
        },
        "targets": {
            each["name"]: {
                **{key: each[key] for key in ("resourceType", "filters", "selectionMode")},
                "resourceTags": {one["key"]: one["value"] for one in each["resourceTags"]},
            }
            for each in targets
        },
    }
    assert api.problems("fis", "CreateExperimentTemplate", asked) == []
    assert api.problems("fis", "CreateExperimentTemplate", {**asked, "experimentOptions": {"emptyTargetResolutionMode": "stop"}})
