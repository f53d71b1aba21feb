"""Cloud Logging for a stack with `logs.ship`: a log bucket that forgets, and what goes to it in place of the project's own.

    kept = logs.declare(part, "ebb-dev", settings, 30)

GKE ships what pods print by itself, with their labels: `labels."k8s-pod/ebb_dev/job"` and `labels."k8s-pod/replica-index"` are
a worker's. By default it all goes to the project's bucket _Default, for 30 days. Here the pods of Ebb have a bucket of their own;
the exclusion takes their lines out of _Default, for each bucket is paid
(https://docs.cloud.google.com/logging/docs/routing/overview, as remembered).
"""

import pulumi
from pulumi_gcp import logging

from infra.clouds.gcp.settings import Settings
from infra.part import Part
from workloads.cluster import JOBS, SYSTEM, TEAMS
from workloads.helpers import PLUGIN_NAMESPACE
from workloads.logs import OWN, Destination


def declare(part: Part, name: str, settings: Settings, keep_days: int) -> Destination:
    """A sink needs no right for a bucket of its own project."""
    project, region = settings.project, settings.region
    bucket = logging.ProjectBucketConfig(
        "logs",
        project=project,
        location=region,
        bucket_id=name,
        description=f"Pods of {name}",
        retention_days=keep_days,
        opts=part.child(),
    )
    sink = logging.ProjectSink(
        "logs",
        name=name,
        project=project,
        destination=pulumi.Output.concat("logging.googleapis.com/", bucket.id),
        filter=chosen(name, region),
        unique_writer_identity=True,
        opts=part.child(),
    )
    logging.ProjectExclusion(
        "logs",
        name=name,
        project=project,
        description=f"They are in the log bucket {name}",
        filter=chosen(name, region),
        opts=part.child(depends_on=[sink]),  # or lines between the two would be nowhere
    )
    view = f"storageScope=storage,projects%2F{project}%2Flocations%2F{region}%2Fbuckets%2F{name}%2Fviews%2F_AllLogs"
    return Destination(links={"logs": f"https://console.cloud.google.com/logs/query;{view}?project={project}"})


def chosen(name: str, region: str) -> str:
    """Lines of the cluster's pods that are Ebb's, in the words of Cloud Logging."""
    return "\n".join((
        'resource.type="k8s_container"',
        f'resource.labels.cluster_name="{name}"',
        f'resource.labels.location="{region}"',
        f'(resource.labels.namespace_name=~"^({SYSTEM}|{JOBS}|{TEAMS}.*)$" OR '
        f'(resource.labels.namespace_name="{PLUGIN_NAMESPACE}" AND resource.labels.pod_name=~"^{OWN}"))',
    ))  # fmt: skip
