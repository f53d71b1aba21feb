"""The jobs that the stack's file lists: they start when the stack comes up, once, and are deleted with it.

How many workers a job has, and whether it is suspended, is its researcher's business (`ebb scale`, `kubectl scale`): neither `up`
nor `refresh` changes that. A job that has finished stays, as an object that says so (a time to live is refused in the stack's
file, for then it would vanish and come again); so a later `up` or `refresh` finds it and leaves it alone. A job that somebody
deletes by hand is another thing: the next `up` shows a creation and starts it anew, since the file lists it. Who wants it to be
gone takes it out of the list.
"""

from collections.abc import Sequence
from typing import Any

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource

from infra import manifests
from infra.cloud import Cluster, Images
from infra.config import JOB_API, JOB_KIND
from infra.config.model import DEFAULT_IMAGE
from workloads.names import JOBS, Resources

TRAINER = "ebb-trainer"  # what job files say in place of the stack's trainer image; ebb-trainer:<name> is that of ebb:trainers
RESEARCHERS_OWN = ("spec.replicaSpecs.Worker.replicas", "spec.suspend")


def jobs(cluster: Cluster, listed: Sequence[dict[str, Any]], images: Images, needs: Sequence[pulumi.Resource]) -> Resources:
    """The jobs that the stack's file lists. `needs`: the controller, so that it still runs when they are deleted."""
    named = _names(images)
    return [
        CustomResource(
            f"job-{job['metadata']['name']}",
            api_version=JOB_API,
            kind=JOB_KIND,
            metadata={"namespace": JOBS, **job["metadata"]},
            spec=manifests.with_images(job["spec"], named),
            opts=pulumi.ResourceOptions.merge(
                cluster.options(depends_on=needs), pulumi.ResourceOptions(ignore_changes=list(RESEARCHERS_OWN))
            ),
        )
        for job in listed
    ]


def _names(images: Images) -> dict[str, pulumi.Input[str]]:
    return {TRAINER if name == DEFAULT_IMAGE else f"{TRAINER}:{name}": image for name, image in images.trainers.items()}
