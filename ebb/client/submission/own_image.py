"""Workers in an image that is not the stack's: the launcher comes with an init container, and the image's own Python runs it.

    if brings_launcher(request.image, platform):
        pod["initContainers"] = [init_container(platform)]
        container["command"] = command(request.interpreter)          # in place of the image's entrypoint

The controller's image has the folder (ebb/elastic/portable): small, and on the stack's registry. The pod keeps it on a volume of
its own. Nothing of the image is needed but Python and torch. The reverse, for `ebb clone` and `ebb local`, is here too.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from ebb.api.platform import Platform
from ebb.client.errors import BadRequest
from ebb.torch_limits import COMPLETE, find_limits, find_problem, title, version_in

Object = dict[str, Any]

VOLUME = "ebb-runtime"  # and the name of the init container
MOUNT = "/ebb/runtime"  # beside the code that travels (/ebb/code): nothing can be mounted in what is mounted read-only
USER = 1000  # the trainer image's, and the owner of the shared volumes
ROOT, IMAGE = "root", "image"
INTERPRETERS = "python3 python"
ENVIRONMENT = {"USER": "ebb"}  # torch asks for the name of a user that no file there knows
_SOURCE = "/opt/ebb/portable/."
_START = (f"{MOUNT}/busybox", "sh", f"{MOUNT}/start")
_LARGEST_ID = 2**31 - 1
# What installers need as root, and no more: they write as others, and become them.
_CAPABILITIES = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"]


def brings_launcher(image: str | None, platform: Platform) -> bool:
    """Return whether workers in that image get the launcher from us; None: it is the stack's own, which has it."""
    return image is not None and bool(platform.launcher_image) and platform.is_foreign(image)


def torch_notes(image: str | None, job: str, platform: Platform) -> list[str]:
    """Say what the image's torch cannot do, where the image's name has its version."""
    if image is None or not brings_launcher(image, platform):
        return []
    version = version_in(image)
    if version is None:
        return [
            f"Which torch is in {image} is seen when it runs: if that is older than {title(COMPLETE)}, the first line of "
            f"`ebb logs {job}` says what it cannot do."
        ]
    found = find_problem(version) or find_limits(version)
    return [f"{image}, by its name: {found}."] if found else []


def init_container(platform: Platform) -> Object:
    small = {"cpu": "100m", "memory": "64Mi"}
    return {
        "name": VOLUME,
        "image": platform.launcher_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["cp", "-r", _SOURCE, MOUNT],
        "resources": {"requests": small, "limits": {"memory": small["memory"]}},
        # As itself, whoever the worker is: the files can be read by all.
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": VOLUME, "mountPath": MOUNT}],
    }


def command(interpreter: str | None) -> list[str]:
    return [*_START, interpreter or INTERPRETERS]


def interpreter_of(words: Sequence[str]) -> str | None:
    """The Python that a command names more exactly than `python`: /opt/conda/bin/python, python3.12."""
    if not words or words[0] in INTERPRETERS.split() or not re.fullmatch(r"python[\d.]*", PurePosixPath(words[0]).name):
        return None
    return words[0]


def is_ours(words: Sequence[str]) -> bool:
    """Return whether a container's command is the launcher that we bring."""
    return tuple(words[: len(_START)]) == _START


def interpreter_in(words: Sequence[str]) -> str | None:
    """The interpreter of a command of ours."""
    named = words[len(_START)] if is_ours(words) and len(words) > len(_START) else INTERPRETERS
    return None if named == INTERPRETERS else named


def check_run_as(who: str | None) -> None:
    """Raises BadRequest."""
    if who in (None, ROOT, IMAGE):
        return
    assert who is not None
    user, colon, group = who.partition(":")
    numbers = [user, group] if colon else [user]
    if not all(each.isdecimal() and 0 < int(each) <= _LARGEST_ID for each in numbers):
        raise BadRequest(
            f"run-as {who!r} is nobody: use a user's number, as in --run-as 1234 or 1234:100, {ROOT!r}, or {IMAGE!r} for the "
            "user that the image names."
        )


def pod_user(who: str | None) -> Object:
    """Fields of the pod's securityContext. Without a group, files belong to that of the shared volumes."""
    if who == IMAGE:
        return {}
    if who == ROOT:
        return {"runAsUser": 0, "runAsGroup": 0}
    user, _, group = (who or str(USER)).partition(":")
    return {"runAsNonRoot": True, "runAsUser": int(user), "runAsGroup": int(group or USER)}


def worker_user(who: str | None) -> Object:
    """Fields of the worker's securityContext. An image's own user may be root."""
    capabilities = {"drop": ["ALL"], **({"add": _CAPABILITIES} if who in (ROOT, IMAGE) else {})}
    # Of the image's USER a kubelet takes the user alone: root's group would have the files. Of the pod containerd takes no group
    # without a user.
    return {"capabilities": capabilities, **({"runAsGroup": USER} if who == IMAGE else {})}


def run_as_of(pod: Mapping[str, Any]) -> str | None:
    """The user that a pod was asked to have; None: the usual one."""
    security = pod.get("securityContext") or {}
    user, group = security.get("runAsUser"), security.get("runAsGroup", USER)
    if user is None:
        return IMAGE
    if user == 0:
        return ROOT
    return None if (user, group) == (USER, USER) else f"{user}:{group}" if group != USER else str(user)
