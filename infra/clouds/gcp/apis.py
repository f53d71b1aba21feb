"""The services of Google Cloud that a stack uses: the stack enables them, and preflight looks whether they are.

    apis.declare(part, settings)          # all else depends on the part

They stay enabled when the stack goes: others in the project may use them by then, and an enabled service costs nothing.
"""

from pulumi_gcp import projects

from infra.clouds.gcp.settings import Settings
from infra.part import Part

# By which services are enabled and projects read: `up` cannot enable them itself.
FIRST = ("serviceusage", "cloudresourcemanager")
ALWAYS = (*FIRST, "compute", "container", "iam", "file", "cloudquotas")


def needed(settings: Settings, *, logs: bool = False) -> tuple[str, ...]:
    """Their names, such as compute.googleapis.com. `logs`: the stack has `logs.ship`."""
    names = [*ALWAYS, *(["lustre", "servicenetworking"] if settings.storage.lustre else [])]
    names += ["artifactregistry", "containerfilesystem"] if settings.images.build != "none" else []
    names += ["cloudbuild", "storage"] if settings.images.build == "cloudbuild" else []
    names += ["iamcredentials", "storage"] if settings.storage.buckets else []
    names += ["logging"] if logs else []
    return tuple(f"{one}.googleapis.com" for one in dict.fromkeys(names))


def declare(part: Part, settings: Settings, *, logs: bool = False) -> None:
    """Enable them. Where they are enabled already, that is no difference."""
    for name in needed(settings, logs=logs):
        projects.Service(name, project=settings.project, service=name, disable_on_destroy=False, opts=part.child())
