"""Names and tags that Azure wants in forms of its own. Pure.

    pool("spot-t4-westus2-1", ...)       # "st41" and four characters: AKS takes 12 of a-z and 0-9, first a letter
    world_wide("dev", subscription)      # of a storage account or a registry, whose names are one space for all the world
    assignment("ebb-dev", "pull")        # of a role assignment, which is a GUID
    tags("dev", settings)                # what everything of a stack carries, so that it can be found and billed

No name is left to chance: what an earlier destroy has kept is found by its name, and never made a second time beside it.
"""

import hashlib
import re
import uuid

from infra.clouds.azure.settings import Settings
from workloads.cluster import MANAGER

STACK, PROJECT = "ebb-stack", "ebb-project"  # `/` and some more are not allowed in tags of Azure
MANAGERS = {MANAGER: MANAGER, f"{MANAGER}-2": f"{MANAGER}2"}  # node groups -> agent pools
POOL_LENGTH, HASH_LENGTH = 12, 4  # https://learn.microsoft.com/azure/aks/create-node-pools, as of 2026-08
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


def pool(group: str, capacity: str, gpu_type: str, zone: str) -> str:
    """The agent pool of a node group: s(pot) or d(emand), GPU, zone, and a hash of the group's whole name. It depends on nothing
    else, so that no other group's coming and going renames it. The manager's are called so."""
    if group in MANAGERS:
        return MANAGERS[group]
    what = re.sub("[^a-z0-9]", "", gpu_type.lower()) or "cpu"
    end = f"{number(zone)}{_hash(group)}"
    return f"{'s' if capacity == 'spot' else 'd'}{what[: POOL_LENGTH - 1 - len(end)]}{end}"


def number(zone: str) -> str:
    """Azure's name of the zone inside its region: westus2-1 is 1."""
    return zone.rpartition("-")[2]


def world_wide(stack: str, subscription: str) -> str:
    """At most 24 of a-z and 0-9."""
    digest = hashlib.sha256(f"{subscription}/{stack}".encode()).hexdigest()[:8]
    return f"ebb{re.sub('[^a-z0-9]', '', stack)[:13]}{digest}"


def assignment(name: str, what: str) -> str:
    """The same at every `up`: Azure refuses a second assignment of the same role under another name."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"https://ebb.dev/{name}/{what}"))


def tags(stack: str, settings: Settings) -> dict[str, str]:
    """The tags of everything that is made."""
    return {PROJECT: "ebb", STACK: stack, **settings.tags}


def _hash(text: str) -> str:
    rest, made = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]), ""
    for _ in range(HASH_LENGTH):
        rest, digit = divmod(rest, len(_ALPHABET))
        made += _ALPHABET[digit]
    return made
