"""Use of secrets in a job: names, the places where values go, the pod that gets them, and what a job that is there uses. Pure.

    destinations(["hf-token", "gcs=/secrets/gcs.json"])      # {"HF_TOKEN": "hf-token", "/secrets/gcs.json": "gcs"}
    variables(uses), volumes(uses), mounts(uses)             # parts of a pod
    uses_of(pod)                                             # (SecretUse(name="hf-token", variable="HF_TOKEN"), ...)

A name is what a person types: HF_TOKEN and hf-token are one secret, `ebb-secret-hf-token` in Kubernetes. The value stays there: a
pod names the object, and the machine that starts it reads it. Sentences here never repeat what follows a '=': somebody may have
typed the value there.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from ebb.client.errors import BadRequest
from ebb.kube import Object

PREFIX = "ebb-secret-"  # of the objects' names: other people's objects in the namespace are never meant
KEY = "value"  # in the Secret
REGISTRY_KEY = ".dockerconfigjson"
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_OBJECT_LENGTH = 253
_NAME_LENGTH = 50  # the pod's volume is named by it, in at most 63 characters
# Capital letters alone: tokens have small ones, and one that is typed here by mistake would be in the job for all to read.
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_VARIABLE_LENGTH = 64
# What Ebb's launcher, torchrun and the pod set for each process.
_RESERVED = frozenset(
    {
        "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE",
        "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME",
        "HOME", "HOSTNAME", "PATH", "PYTHONPATH", "PYTHONUNBUFFERED",
    }
)  # fmt: skip
_RESERVED_PREFIXES = ("EBB_", "PET_", "TORCHELASTIC_")
# Of every worker: Kubernetes', those of `ebb submit`, and where volumes usually are; a platform's own are checked beside these.
MOUNTS = (
    "/dev", "/proc", "/sys", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/var/run/secrets/kubernetes.io",
    "/tmp", "/ebb", "/mnt/data", "/mnt/output", "/mnt/efs",  # noqa: S108 - a pod's, not this machine's
)  # fmt: skip
_FILE_MODE = 0o440  # of root and the job's group, which Kubernetes gives to the files of a pod's volumes


@dataclass(frozen=True, kw_only=True)
class SecretUse:
    """A secret that a job uses: as a variable, as a file, or (neither) to log in to the registry of its image."""

    name: str
    variable: str = ""
    path: str = ""

    @property
    def words(self) -> str:
        """For people."""
        place = f"as {self.variable}" if self.variable else f"at {self.path}" if self.path else "for its image"
        return f"{self.name} {place}"


# ------------------------------------------------------------------------------------------------------------ as it is typed


def secret_name(text: str) -> str:
    """The name as it is kept: hf-token of HF_TOKEN. Raises BadRequest."""
    if "=" in text:
        raise BadRequest(
            f"the name of a secret has no '=': give {text.partition('=')[0]!r} alone. Its value is asked for, or comes from "
            "--from-file, --from-env or a pipe: shells keep what is typed on a command line."
        )
    name = text.lower().replace("_", "-")
    if not _NAME.fullmatch(name) or len(name) > _NAME_LENGTH:
        raise BadRequest(
            f"secret {text!r} is not a usable name: start with a letter, use letters, digits, '-' or '_', do not end with "
            f"these two, and at most {_NAME_LENGTH} characters, as in hf-token."
        )
    return name


def usual_variable(name: str) -> str:
    """The variable of a secret for which none is named: HF_TOKEN of hf-token."""
    return name.upper().replace("-", "_")


def destinations(texts: Iterable[str]) -> dict[str, str]:
    """NAME, NAME=VARIABLE and NAME=/path as place -> name. Raises BadRequest."""
    found: dict[str, str] = {}
    for text in texts:
        typed, equals, place = text.partition("=")
        name = secret_name(typed)
        place = place if equals else usual_variable(name)
        check_place(name, place)
        if found.get(place, name) != name:
            raise BadRequest(f"secret {name!r} and {found[place]!r} both go to {place}: give one of them another place.")
        found[place] = name
    return found


def check_place(name: str, place: str) -> None:
    """Raises BadRequest unless a secret's value may go there, as far as that is known without a platform."""
    if "/" in place or place.startswith("."):
        _check_path(name, place)
        return
    if not _VARIABLE.fullmatch(place) or len(place) > _VARIABLE_LENGTH:
        raise BadRequest(
            f"secret {name!r}: after '=' stands the variable's name, of capital letters, digits and '_', or the path of a file, "
            f"as in --secret {name}={usual_variable(name)} or --secret {name}=/secrets/{name}. The value has no place there: if "
            f"that was it, your shell has kept it, so get a new one and set it with `ebb secret set {name}`."
        )
    if place in _RESERVED or place.startswith(_RESERVED_PREFIXES):
        raise BadRequest(
            f"secret {name!r}: the variable {place} is taken, as Ebb or torchrun sets it. Choose another, as in "
            f"--secret {name}=MY_{usual_variable(name)}."
        )


def _check_path(name: str, place: str) -> None:
    path = PurePosixPath(place)
    if not path.is_absolute() or ".." in path.parts or place.endswith("/") or str(path) != place:
        raise BadRequest(
            f"secret {name!r}: the path of its file must be absolute, without '..' or '/' at its end. Use for example "
            f"--secret {name}=/secrets/{name}."
        )
    check_mounts(name, place, MOUNTS)


def check_mounts(name: str, place: str, mounts: Iterable[str]) -> None:
    """Raises BadRequest for a file on, in or above what the platform mounts: it would hide that, or be written there."""
    path = PurePosixPath(place)
    for mount in mounts:
        if path.is_relative_to(mount) or PurePosixPath(mount).is_relative_to(path):
            raise BadRequest(
                f"secret {name!r}: {place} is in {mount}, or hides it, and the platform mounts that. Use a path of its own, as "
                f"in --secret {name}=/secrets/{name}."
            )


def check_uses(secrets: Mapping[str, str], env: Mapping[str, str]) -> None:
    """Raises BadRequest for places that cannot be, or that something else has."""
    for place, name in secrets.items():
        check_place(name, place)
        if place in env:
            raise BadRequest(f"secret {name!r}: the variable {place} has a value in env as well: leave one of the two out.")
        below = next((other for other in secrets if other.startswith(f"{place}/")), None)
        if place.startswith("/") and below:
            raise BadRequest(f"secret {name!r}: {place} is a file, so {below} cannot be in it: give one of them another path.")


def words_of(secrets: Mapping[str, str]) -> list[str]:
    """As --secret says them."""
    return [name if place == usual_variable(name) else f"{name}={place}" for place, name in secrets.items()]


# ------------------------------------------------------------------------------------------------------------ in a pod


def object_name(name: str, owner: str = "") -> str:
    """The Secret's, and that of the ConfigMap that says it is there. With an owner it is theirs alone: the API server reads that
    from the name, whatever else is there. Raises BadRequest for a name that is too long by the owner's."""
    found = f"{PREFIX}{name}.{owner.encode().hex()}" if owner else f"{PREFIX}{name}"
    if len(found) > _OBJECT_LENGTH:
        raise BadRequest(
            f"secret {name!r}: with your user, {owner!r}, its name is longer than Kubernetes' {_OBJECT_LENGTH} characters: "
            "choose a shorter name, or ask the platform's owner for a shorter user name."
        )
    return found


def variables(secrets: Mapping[str, str], owner: str = "") -> list[Object]:
    """The container's `env`."""
    return [
        {"name": place, "valueFrom": {"secretKeyRef": {"name": object_name(name, owner), "key": KEY}}}
        for place, name in secrets.items()
        if not place.startswith("/")
    ]


def volumes(secrets: Mapping[str, str], owner: str = "") -> list[Object]:
    """The pod's `volumes`: one for each secret that is a file somewhere."""
    names = dict.fromkeys(name for place, name in secrets.items() if place.startswith("/"))
    return [
        {"name": object_name(name), "secret": {"secretName": object_name(name, owner), "defaultMode": _FILE_MODE}}
        for name in names
    ]


def mounts(secrets: Mapping[str, str]) -> list[Object]:
    """The container's `volumeMounts`: a single file each, so that what else is in its folder stays."""
    return [
        {"name": object_name(name), "mountPath": place, "subPath": KEY, "readOnly": True}
        for place, name in secrets.items()
        if place.startswith("/")
    ]


def uses_of(pod: Mapping[str, Any]) -> tuple[SecretUse, ...]:
    """Return the secrets of `ebb secret` that a pod's spec names; people's own Secrets in a file of theirs are not among them."""
    found: list[SecretUse] = []
    held = {str(item.get("name")): _name(_inner(item, "secret").get("secretName")) for item in _items(pod, "volumes")}
    for container in [*_items(pod, "containers"), *_items(pod, "initContainers")]:
        for item in _items(container, "env"):
            if name := _name(_inner(_inner(item, "valueFrom"), "secretKeyRef").get("name")):
                found.append(SecretUse(name=name, variable=str(item.get("name"))))
        for item in _items(container, "envFrom"):
            if name := _name(_inner(item, "secretRef").get("name")):
                found.append(SecretUse(name=name, variable=KEY))
        for item in _items(container, "volumeMounts"):
            if name := held.get(str(item.get("name")), ""):
                found.append(SecretUse(name=name, path=str(item.get("mountPath"))))
    registries = [_name(item.get("name")) for item in _items(pod, "imagePullSecrets")]
    return tuple(dict.fromkeys([*found, *(SecretUse(name=name) for name in registries if name)]))


def _items(value: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The mappings of a list. The API takes any template of a job, and one that is spoiled must not stop `ebb list`."""
    found = value.get(key)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def _inner(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def _name(kubernetes: object) -> str:
    """hf-token of ebb-secret-hf-token and of ebb-secret-hf-token.616461; "" for an object that is none of ours."""
    text = str(kubernetes or "")
    return text.removeprefix(PREFIX).partition(".")[0] if text.startswith(PREFIX) else ""
