# mypy: disallow-untyped-calls=False
# (this part of torch has no types)
"""torchrun's `etcd3` rendezvous: what torch's elastic agent, or our launcher, sees of a job's membership.

    torchrun --nnodes=1:4 --rdzv_backend=etcd3 --rdzv_endpoint=etcd:2379 --rdzv_id=JOB script.py
    ... --rdzv_endpoint=https://a:2379,https://b:2379 --rdzv_conf=cacert=/tls/ca.crt,user=ebb   (password: EBB_ETCD_PASSWORD)
    EBB_ETCD_TLS=/tls torchrun ...     # as --rdzv_conf=cacert=/tls/ca.crt,cert=/tls/tls.crt,key=/tls/tls.key, where it names none

Installed as a package it is found by its entry point (entry_point.py); where the code only lies on PYTHONPATH the launcher
registers it. Other settings of --rdzv_conf: _SETTINGS below. EBB_PLANNED_WORKERS is how many machines the controller plans for
the job, and EBB_OUTPUT_DIR the job's folder; both may be missing. It starts no workers and stops none: the agent asks
num_nodes_waiting().
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch.distributed.elastic.rendezvous as torchs
from torch._C._distributed_c10d import TCPStore
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousParameters,
    RendezvousTimeoutError,
    rendezvous_handler_registry,
)

from ebb.elastic.contract import ENV_ETCD_TLS, ENV_OUTPUT_DIR, ENV_PLANNED_WORKERS
from ebb.elastic.rendezvous.etcd import EtcdError, Refused
from ebb.elastic.rendezvous.generation import EtcdAddress, Generation, open_etcd
from ebb.elastic.rendezvous.member import Member
from ebb.elastic.rendezvous.membership import Rules
from ebb.elastic.rendezvous.participant import JobClosed, RendezvousSettings
from ebb.elastic.rendezvous.state import Record
from ebb.elastic.rendezvous.store import AssemblyFailed, address_of, assemble, look_up_facts, serve

BACKEND = "etcd3"
_LOOK_SECONDS = 5.0  # for etcd's first answer, at most
_FAR_AWAY = "192.0.2.1:9"  # of nobody, by RFC 5737: the way there is that to all the world
_CLOSING_SECONDS = 10.0  # for an etcd that is just being restarted when the job ends
_SETTINGS = {
    "protocol": "http or https, for endpoints that do not say it",
    "cacert": "PEM file of the authority that signed etcd's certificate",
    "cert": "PEM file of our certificate, where etcd asks for one",
    "key": "PEM file of its key",
    "user": "etcd's user; the password is in the environment EBB_ETCD_PASSWORD",
    "processes": "worker processes of this machine, for those who read the membership",
    "lease_seconds": "so long after its last sign of life a machine counts as lost, or less where nothing answers there (10)",
    "last_call_timeout": "seconds to wait at the first start for machines that are planned but not there (5)",
    "join_batch_seconds": "seconds to wait for more newcomers before a running job is stopped for them (2)",
    "straggler_seconds": "seconds that a live machine may take to stop its workers before the others go on (120)",
    "join_timeout": "seconds to wait for the minimum of machines; 0, the default, is without a limit",
    "timeout": "not used: torch always sends it, and machines may take days to come",
}

if TYPE_CHECKING or hasattr(torchs, "RendezvousInfo"):
    from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousStoreInfo
else:

    class RendezvousStoreInfo(NamedTuple):
        """The address of the workers' store, as torch 2.4 has it."""

        master_addr: str
        master_port: int

    class RendezvousInfo(tuple):  # torch's own is an object with more than the three
        """The result of a rendezvous, with torch 2.4's names; an older torch wants (store, rank, world size)."""

        def __new__(cls, store: TCPStore, rank: int, world_size: int, bootstrap_store_info: RendezvousStoreInfo) -> Any:
            found = super().__new__(cls, (store, rank, world_size))
            found.bootstrap_store_info = bootstrap_store_info
            return found

        store, rank, world_size = (property(itemgetter(number)) for number in range(3))


@dataclass(frozen=True)
class Others:
    """A generation that this machine is not in. `facts` are what its rank 0 has told (runtime/recovery.py)."""

    record: Record
    store: TCPStore
    facts: Any


class Etcd3Handler(RendezvousHandler):
    """One machine's. `lost` says whether the last num_nodes_waiting() found a machine that will come to no step boundary; set
    `failed` before a new meeting when this machine's workers did not end by agreement, so that the others need not wait either,
    and `by_itself` when no other machine's loss was why. `cause` says the same of the others. With `members_only` newcomers wait
    for another meeting.
    """

    def __init__(self, member: Member, *, run_id: str, address: str, etcd: EtcdAddress, prefix: str, join_timeout: float) -> None:
        self._member = member
        self._run_id, self._address, self._etcd, self._prefix = run_id, address, etcd, prefix
        self._join_timeout = join_timeout
        self._server: TCPStore | None = None
        self._process = 0
        self._trains = False
        self.lost = self.cause = False
        self.failed = self.by_itself = self.members_only = False

    def get_backend(self) -> str:
        return BACKEND

    def get_run_id(self) -> str:
        return self._run_id

    @property
    def address(self) -> str:
        """The one that this machine gives to the others."""
        return self._address

    @property
    def use_agent_store(self) -> bool:
        """Each generation has its own store on rank 0's machine, and the workers find it at MASTER_ADDR and MASTER_PORT."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Leave the present generation, if any, and meet in the next one.

        Raises RendezvousClosedError when the job is over, RendezvousTimeoutError after join_timeout, RendezvousConnectionError
        when etcd refuses us from the start. Whatever else ends it (a notice) leaves nothing behind that others wait for.
        """
        if self._process != os.getpid():
            self._process = os.getpid()
            atexit.register(self._leave_at_exit, self._process)  # torchrun does not notify us when it has to end
        try:
            with _termination_is_heard():
                return self._meet()
        except JobClosed as closed:
            self.leave()
            raise RendezvousClosedError(f"job {self._run_id!r} is over: {closed}") from None
        except TimeoutError:
            self.leave()
            raise RendezvousTimeoutError(f"job {self._run_id!r}: too few machines came in {self._join_timeout:.0f} s") from None
        except Refused as error:
            raise RendezvousConnectionError(str(error)) from error
        except BaseException:
            self.leave()
            raise

    @property
    def detection_seconds(self) -> float:
        """So long after its end, at most, num_nodes_waiting() shows that a machine is gone."""
        return self._member.detection_seconds

    def leave(self) -> None:
        """The others go on without this machine at once. Takes a few seconds when etcd is away."""
        self._member.leave(orderly=self._trains and not self.failed)
        self._trains = False

    def find_others(self, *, wait_seconds: float) -> Others | None:
        """The generation of the others, if it is whole, has room, and its processes, which live through changes, have begun their
        steps. Waits so long for one that is being formed, and for its facts; 0 is one look. For a machine that is in none."""
        record = self._member.find_others(until=time.monotonic() + max(wait_seconds, _LOOK_SECONDS))
        found = look_up_facts(record.store, wait_seconds=wait_seconds) if record else None
        if record is None or found is None:
            return None
        store, facts = found
        return Others(record=record, store=store, facts=facts)

    def num_nodes_waiting(self) -> int:
        """Positive when this generation should end: newcomers that fit, a machine that is gone, one that meets again."""
        verdict = self._member.verdict()
        self.lost, self.cause = verdict.lost, verdict.cause
        return verdict.waiting

    def is_closed(self) -> bool:
        try:
            return self._member.closed()
        except EtcdError as error:
            raise RendezvousConnectionError(str(error)) from error

    def set_closed(self) -> None:
        """Nobody meets again for this job."""
        deadline = time.monotonic() + _CLOSING_SECONDS
        while True:
            try:
                return self._member.close(f"closed by {self._address}")
            except EtcdError as error:
                if isinstance(error, Refused) or time.monotonic() > deadline:
                    raise RendezvousConnectionError(str(error)) from error
                time.sleep(0.5)  # nothing to wait on: etcd has to come back

    def shutdown(self) -> bool:
        try:
            self.set_closed()
        except RendezvousConnectionError:
            return False
        finally:
            self.stop()
        return True

    def stop(self) -> None:
        """Leave, and end the threads; the job goes on."""
        self.leave()
        self._member.stop()
        self._server = None
        atexit.unregister(self._leave_at_exit)
        self._process = 0

    def _meet(self) -> RendezvousInfo:
        until = time.monotonic() + self._join_timeout if self._join_timeout else None
        while True:
            self._trains = False
            server = serve(self._address)
            record = self._member.meet(
                address_of(server),
                failed=self.failed,
                by_itself=self.by_itself,
                members_only=self.members_only,
                until=until,
            )
            self.lost = self.cause = self.failed = self.by_itself = self.members_only = False
            self._server = server
            with contextlib.suppress(AssemblyFailed):
                found = self._info(record, server)
                self._trains = True
                return found
            self.failed = True

    def _info(self, record: Record, server: TCPStore) -> RendezvousInfo:
        rank = record.ids.index(self._member.id)
        etcd = replace(self._etcd, addresses=self._member.etcd_addresses)
        generation = Generation(number=record.number, prefix=self._prefix, etcd=etcd)
        store = assemble(record, rank, server, generation, broken=lambda: self._member.verdict().lost)
        host, _, port = record.store.rpartition(":")
        return RendezvousInfo(store, rank, len(record.members), RendezvousStoreInfo(host, int(port)))

    def _leave_at_exit(self, process: int) -> None:
        if os.getpid() == process:
            self.leave()


def create_handler(parameters: RendezvousParameters, *, say: Callable[[str], None] | None = None) -> Etcd3Handler:
    """From torchrun's parameters and the environment. Raises ValueError for what a user has to mend; asks etcd nothing yet."""
    found = parameters.config
    if unknown := sorted(found.keys() - _SETTINGS):
        known = "; ".join(f"{name}: {meaning}" for name, meaning in _SETTINGS.items())
        raise ValueError(f"--rdzv_conf has no {', '.join(map(repr, unknown))} for the backend {BACKEND}. It has {known}")
    if not parameters.endpoint:
        raise ValueError("--rdzv_endpoint is missing: where etcd is, such as etcd:2379 or https://a:2379,https://b:2379")
    etcd = _address_of_etcd(parameters.endpoint, _with_certificates(found, parameters.endpoint, os.environ.get(ENV_ETCD_TLS)))
    address = parameters.local_addr or own_address(etcd.endpoint)
    output = os.environ.get(ENV_OUTPUT_DIR)
    settings = RendezvousSettings(
        run_id=parameters.run_id,
        address=address,
        rules=Rules(
            min_size=parameters.min_nodes,
            max_size=parameters.max_nodes,
            last_call_seconds=_number(found, "last_call_timeout", Rules.last_call_seconds),
            join_batch_seconds=_number(found, "join_batch_seconds", Rules.join_batch_seconds),
            straggler_seconds=_number(found, "straggler_seconds", Rules.straggler_seconds),
        ),
        processes=int(_number(found, "processes", 0)) or None,
        planned=int(_number({ENV_PLANNED_WORKERS: os.environ.get(ENV_PLANNED_WORKERS) or 0}, ENV_PLANNED_WORKERS, 0)),
        lease_seconds=max(2, int(_number(found, "lease_seconds", RendezvousSettings.lease_seconds))),
        output=Path(output) if output else None,
    )
    client = open_etcd(etcd, os.environ)
    return Etcd3Handler(
        Member(client, settings, say=say or logging.getLogger(__name__).warning),
        run_id=parameters.run_id,
        address=address,
        etcd=etcd,
        prefix=settings.prefix.rstrip("/"),
        join_timeout=_number(found, "join_timeout", 0),
    )


def register() -> None:
    """For a torch that has not found the entry point. Twice is fine."""
    rendezvous_handler_registry.register(BACKEND, create_handler)


def own_address(endpoint: str) -> str:
    """This machine's address on the way to etcd, or out of its network while etcd's name is not found: the others need no DNS
    name of it, which may not exist yet."""
    first = _with_port(endpoint.partition(",")[0].strip(), "http")
    for place in (first.rpartition("://")[2], _FAR_AWAY):
        host, _, port = place.rpartition(":")
        with contextlib.suppress(OSError, ValueError):
            found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
            with socket.socket(found[0][0], socket.SOCK_DGRAM) as probe:
                probe.connect(found[0][4])  # of UDP: nothing is sent
                return str(probe.getsockname()[0])
    return socket.getfqdn()


def _with_certificates(found: Mapping[str, Any], endpoint: str, folder: str | None) -> Mapping[str, Any]:
    """The settings, with the files that the environment names, unless something there or in the endpoint says otherwise."""
    if not folder or "http://" in endpoint or found.keys() & {"protocol", "cacert", "cert", "key"}:
        return found
    return {**found, "cacert": f"{folder}/ca.crt", "cert": f"{folder}/tls.crt", "key": f"{folder}/tls.key"}


def _address_of_etcd(endpoint: str, found: Mapping[str, Any]) -> EtcdAddress:
    files = {name: str(found.get(name, "")) for name in ("cacert", "cert", "key")}
    protocol = found.get("protocol", "https" if any(files.values()) else "http")
    if protocol not in ("http", "https"):
        raise ValueError(f"--rdzv_conf protocol is {protocol!r}; allowed: http, https")
    urls = [_with_port(each.strip(), protocol) for each in endpoint.split(",")]
    return EtcdAddress(
        endpoint=",".join(urls),
        user=str(found.get("user", "")),
        cacert=files["cacert"],
        cert=files["cert"],
        key=files["key"],
    )


def _with_port(endpoint: str, protocol: str) -> str:
    scheme, _, rest = endpoint.rpartition("://")
    host = rest.rstrip("/")
    if not host.rpartition("]")[2].rpartition(":")[2].isdigit() or ":" not in host.rpartition("]")[2]:
        host += ":2379"
    return f"{scheme or protocol}://{host}"


def _number(found: Mapping[str, Any], name: str, default: float) -> float:
    try:
        number = float(found.get(name, default))
    except ValueError:
        number = -1
    if number < 0:
        raise ValueError(f"{name} is {found[name]!r}; it must be a number, 0 or more")
    return number


@contextlib.contextmanager
def _termination_is_heard() -> Iterator[None]:
    """torchrun hears SIGTERM only from its first worker on; as PID 1 it would ignore it here. A handler that is there stays."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def leave(number: int, _frame: Any) -> None:
        raise SignalException(f"process {os.getpid()} was told to end", sigval=signal.Signals(number))

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
