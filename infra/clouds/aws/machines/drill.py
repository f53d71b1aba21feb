"""A drill: spot machines of one group are reclaimed as EC2 would do it, notice and all. Started by hand, never by itself.

    command = drill.declare(part, "ebb-dev", settings)      # None without `aws.drill`

The template costs nothing while it is not started. It takes machines that run, by their tags, and fails where there are none.
"""

import pulumi
from pulumi_aws import fis

from infra.clouds.aws.iam import identity
from infra.clouds.aws.machines import machine
from infra.clouds.aws.settings import Drill, Settings
from infra.part import Part

ACTION, TARGET = "aws:ec2:send-spot-instance-interruptions", "SpotInstances"
# From two minutes on; with two the notice comes at once, as in a real reclaim
# (https://docs.aws.amazon.com/fis/latest/userguide/fis-actions-reference.html#send-spot-instance-interruptions, read 2026-11-21).
NOTICE = "PT2M"


def declare(part: Part, name: str, settings: Settings) -> pulumi.Output[str] | None:
    """The command that starts it."""
    drill = settings.drill
    if drill is None:
        return None
    template = fis.ExperimentTemplate(
        "drill",
        description=f"Reclaims {drill.machines} spot machine(s) of {drill.group} in {name}, with notice",
        role_arn=identity.role(part, name, "drill", group=drill.group).arn,
        actions=[
            {
                "name": "reclaim",
                "action_id": ACTION,
                "parameters": [{"key": "durationBeforeInterruption", "value": NOTICE}],
                "target": {"key": TARGET, "value": "machines"},
            }
        ],
        targets=[
            {
                "name": "machines",
                "resource_type": "aws:ec2:spot-instance",
                "resource_tags": [
                    {"key": machine.STACK, "value": name.removeprefix("ebb-")},
                    {"key": machine.GROUP, "value": drill.group},
                ],
                "filters": [{"path": "State.Name", "values": ["running"]}],
                "selection_mode": f"COUNT({drill.machines})",
            }
        ],
        stop_conditions=[_stop(drill)],
        experiment_options={"account_targeting": "single-account", "empty_target_resolution_mode": "fail"},
        tags={"Name": f"{name}-drill"},
        opts=part.child(),
    )
    return pulumi.Output.concat("aws fis start-experiment --region ", settings.region, " --experiment-template-id ", template.id)


def _stop(drill: Drill) -> fis.ExperimentTemplateStopConditionArgsDict:
    if drill.stop_alarm_arn:
        return {"source": "aws:cloudwatch:alarm", "value": drill.stop_alarm_arn}
    return {"source": "none"}
