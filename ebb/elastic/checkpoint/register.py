"""EtcdFence's view of etcd: one key read, one key put under two conditions. Used by start.py; the client is
ebb/elastic/rendezvous's.

The checkpoint's key lives a week after the last commit: jobs that are gone leave nothing in etcd, and one that is suspended for
longer finds its newest checkpoint in its folder.
"""

from __future__ import annotations

from ebb.elastic.checkpoint.errors import FenceUnreachable
from ebb.elastic.rendezvous.etcd import Compare, Etcd, EtcdError, LeaseGone, Put

LEASE_SECONDS = 7 * 24 * 3600


class EtcdRegister:
    """One per process and generation. Whatever etcd refuses may be repaired while the training goes on: all is Unreachable."""

    def __init__(self, etcd: Etcd) -> None:
        self._etcd = etcd
        self._lease = 0

    def read(self, key: str) -> tuple[bytes, int] | None:
        try:
            item = self._etcd.get(key)
        except EtcdError as error:
            raise FenceUnreachable(str(error)) from error
        return (item.value, item.mod_revision) if item else None

    def put_if(self, key: str, value: bytes, *, revision: int, guard: str, guard_value: bytes) -> bool:
        compares = [Compare(guard, "value", guard_value), Compare(key, "mod_revision", revision)]
        try:
            return self._etcd.transact(compares, [Put(key, value, self._renewed())])
        except LeaseGone as error:  # it expired in this moment: the next try has a new one
            self._lease = 0
            raise FenceUnreachable(str(error)) from error
        except EtcdError as error:
            raise FenceUnreachable(str(error)) from error

    def _renewed(self) -> int:
        if not self._lease or not self._etcd.keep_alive(self._lease):
            self._lease = self._etcd.grant(LEASE_SECONDS)
        return self._lease
