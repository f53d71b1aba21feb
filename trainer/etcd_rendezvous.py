# mypy: disallow-untyped-calls=False
# (neither python-etcd nor this part of torch has types)
"""Meeting the other machines through torch's `etcd` rendezvous (etcd's v2 API), made quick and kept alive.

    handler = connect(parameters, say=print)   # a torch RendezvousHandler

What torch's own handler lacks, and this one adds from outside, through its public classes:
- Leaving is announced. Stock members only stop renewing a key of 10 s, and everybody waits for it to expire; a member that must
  meet the others again destroys the version it was in, which is what a waiting newcomer does once a key has expired.
- A vanished member is noticed: `num_nodes_waiting` also looks for members whose key is gone, and for a version that was
  replaced. It is the backstop for what no socket tells (a hung peer, a machine lost while the ranks meet).
- The directory of a job has a life of 2 h in torch 2.13, and its renewal fails on etcd 3.5 ("Not a file"), after which a
  newcomer starts a second world. Here it is made without a life before torch looks; a few kB of every job stay in etcd.
- A restart of etcd, with its data or without, costs at most one more meeting.

It goes away when our own rendezvous on etcd's v3 API exists. It decides nothing about processes: launch.py does.
"""

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import etcd
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.etcd_rendezvous import EtcdRendezvous, EtcdRendezvousHandler
from torch.distributed.elastic.rendezvous.etcd_store import EtcdStore
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from trainer.notice import Interrupted

_PREFIX = "/torchelastic/p2p"
# The first to arrive waits this long for the others (torch adds up to 1 s). The survivors of a change come within tenths.
_LAST_CALL_SECONDS = 1
_LOOK_SECONDS = 0.5  # between two looks at the membership


def connect(parameters: RendezvousParameters, *, say: Callable[[str], None]) -> "EtcdMembership":
    """Wait until etcd answers, however long it takes; a line every ten seconds says so."""
    logging.getLogger("torch.distributed.elastic.rendezvous.etcd_rendezvous").setLevel(logging.WARNING)
    threading.excepthook = _quiet_renewal
    host, port = parse_rendezvous_endpoint(parameters.endpoint, 2379)
    tries = 0
    while True:
        try:
            return _connect_once(parameters, host, port)
        except (etcd.EtcdException, OSError) as error:
            if tries % 10 == 0:
                say(f"waiting for etcd at {host}:{port}: {error}")
            tries += 1
            time.sleep(1)  # nothing to wait on: a connection that is refused has no event


def _connect_once(parameters: RendezvousParameters, host: str, port: int) -> "EtcdMembership":
    settings = parameters.config
    certificate = settings.get("cert")
    client = etcd.Client(  # type: ignore[attr-defined]
        host,
        port,
        protocol=settings.get("protocol", "http"),
        cert=(certificate, settings["key"]) if certificate and "key" in settings else certificate,
        ca_cert=settings.get("cacert"),
        allow_reconnect=True,
    )
    prefix = settings.get("etcd_prefix", _PREFIX).rstrip("/")
    _make_folders(client, f"{prefix}/run_{parameters.run_id}")
    rendezvous = EtcdRendezvous(
        client,
        prefix,
        parameters.run_id,
        parameters.min_nodes,
        parameters.max_nodes,
        int(settings.get("timeout", 900)),
        int(settings.get("last_call_timeout", _LAST_CALL_SECONDS)),
    )
    return EtcdMembership(EtcdRendezvousHandler(rendezvous, parameters.local_addr), rendezvous)


def _make_folders(client: Any, job: str) -> None:
    """What torch's handler expects of a job; without a life, and again when etcd has lost its data."""
    for folder in (job, f"{job}/rdzv"):
        with contextlib.suppress(etcd.EtcdAlreadyExist):
            client.write(folder, None, dir=True, prevExist=False)
    with contextlib.suppress(etcd.EtcdAlreadyExist):
        client.write(f"{job}/rdzv/version_counter", "0", prevExist=False)


class EtcdMembership(RendezvousHandler):
    """torch's handler, with the additions above. `lost` says that the last look found a member gone, not one more waiting."""

    def __init__(self, handler: EtcdRendezvousHandler, rendezvous: EtcdRendezvous) -> None:
        self._handler = handler
        self._rendezvous = rendezvous
        self._version: str | None = None
        self._looked_at = 0.0
        self._waiting = 0
        self.lost = False

    def get_backend(self) -> str:
        return "etcd"

    def get_run_id(self) -> str:
        return str(self._handler.get_run_id())

    def next_rendezvous(self) -> RendezvousInfo:
        """Leave the present version, if any, and meet in the next one; waits for the minimum of machines without a limit.

        Raises RendezvousClosedError when the job is over.
        """
        self.leave()
        self.lost, self._waiting = False, 0
        while True:
            try:
                _make_folders(self._rendezvous.client, self._rendezvous.get_path("").rstrip("/"))
                info: RendezvousInfo = self._handler.next_rendezvous()
                folder = cast(EtcdStore, info.store).prefix  # .../v_<version>/kv/
                self._version = folder.rstrip("/").split("/")[-2].removeprefix("v_")
                return info
            except (RendezvousTimeoutError, LookupError):
                continue  # machines may take days to come; or one vanished just when all had met
            except etcd.EtcdConnectionFailed:
                time.sleep(1)  # etcd is being restarted
            except Interrupted:
                self.leave(meeting=True)
                raise

    def leave(self, *, meeting: bool = False) -> None:
        """Destroy the version this machine is in, so that the others meet at once. A newer one is never touched.

        With `meeting` also one that is still being formed: it would wait for this machine until its key expires.
        """
        with contextlib.suppress(etcd.EtcdException):
            active, state = self._rendezvous.get_rdzv_state()
            ours = state.get("status") == "final" and state.get("version") == self._version
            if ours or (meeting and state.get("status") in ("joinable", "frozen")):
                self._rendezvous.client.delete(key=active.key, prevValue=active.value)
        self._version = None

    def num_nodes_waiting(self) -> int:
        """Positive when this generation should end: newcomers wait, or a member is gone (`lost`)."""
        if time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = time.monotonic()
            with contextlib.suppress(etcd.EtcdException):  # etcd is away for a while: training needs no news
                self._waiting = self._look()
        return self._waiting

    def _look(self) -> int:
        try:
            _, state = self._rendezvous.get_rdzv_state()
        except etcd.EtcdKeyNotFound:
            state = {}
        if state.get("version") != self._version or state.get("status") != "final":
            self.lost = state.get("status") != "closed"
            return int(self.lost)
        if state["num_workers_waiting"] > 0:
            return int(state["num_workers_waiting"])
        folder = self._rendezvous.client.get(self._rendezvous.get_path(f"/rdzv/v_{self._version}"))
        alive = {child.key for child in folder.children}
        self.lost = not alive.issuperset(state["keep_alives"])
        return int(self.lost)

    def is_closed(self) -> bool:
        return bool(self._handler.is_closed())

    def set_closed(self) -> None:
        """Nobody meets again for this job. Also when a survivor has just destroyed the version to meet again."""
        closed = json.dumps({"status": "closed"})
        while True:
            try:
                self._handler.set_closed()
                return
            except etcd.EtcdKeyNotFound:
                with contextlib.suppress(etcd.EtcdAlreadyExist):
                    key = self._rendezvous.get_path("/rdzv/active_version")
                    self._rendezvous.client.write(key, closed, prevExist=False)
                    return

    def shutdown(self) -> bool:
        try:
            self.set_closed()
        except (etcd.EtcdException, RendezvousClosedError):
            return False
        return True


def _quiet_renewal(failure: threading.ExceptHookArgs) -> None:
    """torch's threads that renew keys end with a traceback: the job's directory needs none (see the top), and a machine whose own
    key expires while etcd is away sees it missing and meets the others again."""
    if not isinstance(failure.exc_value, etcd.EtcdException):
        threading.__excepthook__(failure)
