"""Google Cloud: `preempted` (30 seconds of a spot machine) and `maintenance-event`, from the metadata server.

`preempted` is waited for with wait_for_change, so that no second of the thirty is lost; the wait ends every few seconds to look
at `maintenance-event`, which must be asked for at least once or a migration begins without its warning. An answer without the
header `Metadata-Flavor: Google` is not the metadata server's. The server answers 503 now and then while it is moved.

TERMINATE_ON_HOST_MAINTENANCE stops the machine after 60 seconds, or after an hour where it has GPUs; which of them is not in
the answer, so the machine leaves at once. MIGRATE_ON_HOST_MAINTENANCE keeps it running, through a pause: a checkpoint is wise.

Source: Compute Engine documentation, "Query metadata server for maintenance event notices", "Create and use Spot VMs",
"Handle GPU host maintenance events"; GCE_METADATA_HOST as in Google's libraries.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from ebb.metadata.announcement import Announcement
from ebb.metadata.service import Answer, Garbled, Metadata

ADDRESS = "169.254.169.254"
_PREEMPTED = "/computeMetadata/v1/instance/preempted"
_MAINTENANCE = "/computeMetadata/v1/instance/maintenance-event"
_RECLAIM_SECONDS = 30.0
_MAINTENANCE_SECONDS = 60.0


class Gcp:
    """The metadata server of one Compute Engine machine."""

    name = "Google Cloud"
    poll_seconds = 1.0  # the pace of a server that does not wait for a change; else the wait is the pace
    retry_seconds = 5.0  # a sixth of the warning time

    def __init__(self, environment: Mapping[str, str], *, timeout_seconds: float = 2.0, wait_seconds: int = 10) -> None:
        address = f"http://{environment.get('GCE_METADATA_HOST') or ADDRESS}"
        self._service = Metadata(address, timeout_seconds=timeout_seconds)
        self._timeout_seconds, self._wait_seconds = timeout_seconds, wait_seconds
        self._etag = ""

    def look(self) -> Announcement | None:
        return self._reclaim() or self._maintenance()

    def left(self) -> str | None:
        """Google does not want to know."""
        return None

    def _reclaim(self) -> Announcement | None:
        path, limit = _PREEMPTED, self._timeout_seconds
        if self._etag:
            path += f"?wait_for_change=true&timeout_sec={self._wait_seconds}&last_etag={quote(self._etag)}"
            limit += self._wait_seconds
        self._etag, etag = "", self._etag  # after an error the value is asked for without a wait
        answer = self._get(path, limit)
        value = answer.text().upper()
        if value not in ("TRUE", "FALSE"):
            raise Garbled(f"{answer.question} answered {value[:40]!r}; TRUE or FALSE is documented")
        self._etag = answer.headers.get("etag", etag)
        if value == "FALSE":
            return None
        text = "Google Cloud takes this machine back"
        return Announcement(key="preempted", text=text, reclaim=True, seconds_left=_RECLAIM_SECONDS, promised=True)

    def _maintenance(self) -> Announcement | None:
        value = self._get(_MAINTENANCE, self._timeout_seconds).text().upper()
        if value == "TERMINATE_ON_HOST_MAINTENANCE":
            text = "Google Cloud stops this machine for maintenance of its host"
            return Announcement(key=value, text=text, reclaim=True, seconds_left=_MAINTENANCE_SECONDS)
        if value == "MIGRATE_ON_HOST_MAINTENANCE":
            return Announcement(key=value, text="Google Cloud moves this machine to another host", reclaim=False)
        return None  # NONE, or a value that is newer than this program

    def _get(self, path: str, timeout_seconds: float) -> Answer:
        answer = self._service.ask("GET", path, {"Metadata-Flavor": "Google"}, timeout_seconds=timeout_seconds)
        if answer.status != 200:
            raise answer.refused()
        if answer.headers.get("metadata-flavor") != "Google":
            raise Garbled(f"{answer.question} was answered by something that is not Google's metadata server")
        return answer
