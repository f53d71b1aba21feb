"""CloudWatch Logs, with `logs.ship`."""

import json
from functools import cache

import yaml

from infra import config, program
from infra.clouds.aws.cloud import Aws
from infra.config import ROOT
from tests.infra.aws import stacks
from tests.infra.aws.case import CASE
from tests.infra.declared import Declared, declared
from tests.infra.stacks import problems
from workloads.logs import Keep, file_output

GROUP = "/ebb-test/pods"


@cache
def world() -> Declared:
    stack = config.parse({**stacks.small(), "logs": {"ship": True, "keepDays": 14}}, ROOT)
    return declared(lambda: program.declare(stack, Aws(stack, stack.settings)), answers=CASE.answers, stack="test")


def test_the_group_forgets_and_goes_with_the_stack() -> None:
    (group,) = [one for one in world().all("LogGroup") if one.inputs["name"].endswith("/pods")]
    assert (group.inputs["name"], group.inputs["retentionInDays"]) == (GROUP, 14)
    assert not group.retain_on_delete
    assert group.key in world().before(world().one("DaemonSet", "daemon-set-ebb-logs")), "Fluent Bit makes none"


def test_fluent_bit_writes_there_and_makes_no_group() -> None:
    text = world().one("ConfigMap", "ebb-logs").inputs["data"]["fluent-bit.yaml"]
    (output,) = yaml.safe_load(text)["pipeline"]["outputs"]
    assert (output["name"], output["region"], output["log_group_name"]) == ("cloudwatch_logs", "us-west-2", GROUP)
    assert output["auto_create_group"] is False
    assert not set(file_output(Keep(days=1, gib=1))) - {"name"} & output.keys()
    assert not [one for one in world().all("PersistentVolumeClaim") if "logs" in one.name]
    assert not [one for one in world().all("Deployment") if "ebb-log-files" in one.name]


def test_it_may_write_there_and_nowhere_else() -> None:
    (link,) = [one for one in world().all("PodIdentityAssociation") if one.inputs["serviceAccount"] == "ebb-logs"]
    assert link.inputs["namespace"] == "kube-system"
    assert link.key in world().before(world().one("DaemonSet", "daemon-set-ebb-logs")), "a pod gets credentials as it is made"
    (policy,) = [one for one in world().all("RolePolicy") if one.name.endswith("-logs")]
    (statement,) = json.loads(policy.inputs["policy"])["Statement"]
    assert statement == {
        "Effect": "Allow",
        "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
        "Resource": [f"arn:aws:logs:*:*:log-group:{GROUP}:*"],
    }
    (role,) = [one for one in world().all("Role") if one.name.endswith("-logs") and one.type.startswith("aws:")]
    (trust,) = json.loads(role.inputs["assumeRolePolicy"])["Statement"]
    assert trust["Condition"]["StringEquals"]["aws:RequestTag/kubernetes-service-account"] == "ebb-logs"


def test_people_are_led_there() -> None:
    facts = json.loads(world().one("ConfigMap", "ebb-platform").inputs["data"]["platform.json"])
    assert facts["dashboards"]["logs"].endswith("#logsV2:log-groups/log-group/$252Febb-test$252Fpods")


def test_days_are_those_that_cloudwatch_knows() -> None:
    (text,) = problems({**stacks.small(), "logs": {"ship": True, "keepDays": 10}})
    assert text.startswith("logs.keepDays: found 10; allowed are 1, 3, 5, 7, 14, 30")


def test_a_size_has_no_effect_there() -> None:
    (text,) = problems({**stacks.small(), "logs": {"ship": True, "keepGiB": 4}})
    assert text.startswith("logs.keepGiB: found 4; CloudWatch Logs is paid by what comes in")
