"""The facts a worker process has about its generation: its number, and the way to etcd.

    generation = read(os.environ)          # in a worker; None when it was not started through our rendezvous
    generation.number, generation.key, generation.etcd
    etcd = open_etcd(generation.etcd, os.environ)

Rank 0's agent puts it, as JSON, into the TCPStore of the generation before any worker starts. A password is never in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from datetime import timedelta
from typing import Final

from ebb.compat import dataclass
from ebb.elastic.rendezvous.etcd import Etcd, Tls

STORE_KEY: Final = "ebb/generation"
ENV_PASSWORD: Final = "EBB_ETCD_PASSWORD"  # noqa: S105  # its name, not the password
_CONNECT_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class EtcdAddress:
    """`endpoint` may be several, with commas between; the files are where the agent has them, which is where its workers do.
    `addresses`: by name, where the agent found their hosts, for workers that start while nobody answers DNS."""

    endpoint: str
    cacert: str = ""
    cert: str = ""
    key: str = ""
    user: str = ""
    addresses: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Generation:
    """`prefix` is that of the job's keys, without the last /. `etcd` is None where none is used."""

    number: int
    prefix: str
    etcd: EtcdAddress | None

    @property
    def key(self) -> str:
        """The key that says which generation is the present one."""
        return f"{self.prefix}/generation"

    def to_json(self) -> str:
        etcd = asdict(self.etcd) if self.etcd else None
        return json.dumps({"generation": self.number, "etcd": etcd, "prefix": self.prefix})

    @classmethod
    def from_json(cls, text: str | bytes) -> Generation:
        found = json.loads(text)
        etcd = EtcdAddress(**found["etcd"]) if found["etcd"] else None
        return cls(number=found["generation"], prefix=found["prefix"], etcd=etcd)


def read(environment: Mapping[str, str]) -> Generation | None:
    """From the store of the agent that started this process. Blocks for a minute at most, while rank 0's agent is reached."""
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    from ebb.elastic.torch_compat import has_keys, open_store  # noqa: PLC0415  # the launcher imports this module before torch is needed

    host, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    timeout = timedelta(seconds=_CONNECT_SECONDS)
    store = open_store(host, port, is_master=False, wait_for_workers=False, timeout=timeout)
    return Generation.from_json(store.get(STORE_KEY)) if has_keys(store, [STORE_KEY]) else None


def open_etcd(address: EtcdAddress, environment: Mapping[str, str], *, timeout_seconds: float = 5.0) -> Etcd:
    tls = Tls(cacert=address.cacert, cert=address.cert, key=address.key) if address.cacert or address.cert else None
    return Etcd(
        address.endpoint.split(","),
        tls=tls,
        user=address.user,
        password=environment.get(ENV_PASSWORD, ""),
        timeout_seconds=timeout_seconds,
        addresses=address.addresses,
    )
