"""A rehearsal's reclaim on AWS: the stack's FIS experiment takes a spot machine as EC2 does, with two minutes of notice."""

import uuid
from collections.abc import Mapping
from typing import Any

from infra.clouds.aws.account.calls import Account, Calls, Refused
from infra.clouds.aws.leftovers import drills
from infra.config import Stack


def needed(group: str) -> Mapping[str, Any]:
    """Settings of the section `aws` without which no machine of that node group can be reclaimed."""
    return {"drill": {"group": group}}


def reclaim(stack_name: str, stack: Stack, provider_id: str, calls: Calls | None = None) -> str:
    """Start it, and say what was started. FIS picks by the group's tags: the rehearsal has one machine there. Raises Refused."""
    calls = calls or Account(stack.settings.region)
    template = next(drills(calls, stack_name), None)
    if template is None:
        raise Refused("NoTemplate", f"there is no FIS experiment template with the tag of stack {stack_name}")
    started = calls("fis", "start_experiment", experimentTemplateId=template.name, clientToken=str(uuid.uuid4()))
    return f"FIS experiment {started['experiment']['id']}"
