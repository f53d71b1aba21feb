"""Reads the machine usage record and the records of jobs that are gone."""

import json
from typing import Any

from ebb.api.contract import LABEL_RECORD, RECORD_KEY
from ebb.api.usage import NAME, NAMESPACE, MachineUsage, MachineUsageError, read
from ebb.client.errors import ClientError
from ebb.client.platform.connection import Ebb
from ebb.kube import CONFIG_MAPS, Denied, NotFound


async def read_usage(ebb: Ebb) -> MachineUsage | None:
    """None where there are none: a stack that is older, or one whose role `researcher` is. Raises ClientError."""
    try:
        found = await ebb.kube.get(CONFIG_MAPS, NAMESPACE, NAME)
    except (NotFound, Denied):
        return None
    try:
        return read(found.get("data") or {})
    except MachineUsageError as error:
        raise ClientError(str(error)) from error


async def read_records(ebb: Ebb) -> list[dict[str, Any]]:
    """Of the namespace; one that somebody edited beyond reading is left out."""
    told = []
    for item in await ebb.kube.list(CONFIG_MAPS, ebb.namespace, labels=f"{LABEL_RECORD}=true"):
        try:
            record = json.loads((item.get("data") or {})[RECORD_KEY])
            told.append(record if record["uid"] and record["machineSeconds"] >= 0 else {})
        except (KeyError, ValueError, TypeError):
            continue
    return [record for record in told if record]
