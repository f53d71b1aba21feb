"""The reviewed tables: every AWS type that the stack uses, by token."""

from collections.abc import Mapping

from local.echo.kind import AwsType
from local.echo.tables import access, compute, eks, images, network, objects, storage

TYPES: Mapping[str, AwsType] = {
    row.token: row
    for rows in (network.ROWS, compute.ROWS, eks.ROWS, access.ROWS, storage.ROWS, objects.ROWS, images.ROWS)
    for row in rows
}
