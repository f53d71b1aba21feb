"""CloudWatch Logs for a stack with `logs.ship`: a log group that forgets, and the identity by which Fluent Bit writes to it.

kept = logs.declare(part, "ebb-dev", control, settings, 30)
"""

import pulumi
from pulumi_aws import cloudwatch, eks

from infra.clouds.aws.control.cluster import ControlPlane
from infra.clouds.aws.iam import identity
from infra.clouds.aws.settings import Settings
from infra.part import Part
from workloads.helpers import PLUGIN_NAMESPACE
from workloads.logs import NAME, Destination


def log_group(name: str) -> str:
    """Its name, for the stack ebb-<stack>."""
    return f"/{name}/pods"


def declare(part: Part, name: str, control: ControlPlane, settings: Settings, keep_days: int) -> Destination:
    """A pod gets its credentials when it is created, so Fluent Bit waits for the association, and for the group: it makes none.
    It takes credentials of Pod Identity from 4.0 on (https://github.com/fluent/fluent-bit/pull/10115, read 2026-11-28)."""
    region = settings.region
    group = cloudwatch.LogGroup(f"{name}-pods", name=log_group(name), retention_in_days=keep_days, opts=part.child())
    link = eks.PodIdentityAssociation(
        NAME,
        cluster_name=control.name,
        namespace=PLUGIN_NAMESPACE,
        service_account=NAME,
        role_arn=identity.role(part, name, "logs").arn,
        opts=part.child(depends_on=control.ready),
    )
    output = {
        "name": "cloudwatch_logs",
        "region": region,
        "log_group_name": log_group(name),
        # One stream for each container; the second is of a line from which no name could be made.
        "log_stream_template": "$namespace.$pod.$container",
        "log_stream_prefix": "other.",
        "auto_create_group": False,
    }
    console = f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}"
    return Destination(
        output=output,
        environment={"AWS_REGION": pulumi.Output.all(link.association_id, group.arn).apply(lambda _: region)},
        links={"logs": f"{console}#logsV2:log-groups/log-group/{log_group(name).replace('/', '$252F')}"},
    )
