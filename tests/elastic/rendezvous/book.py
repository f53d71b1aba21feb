"""An etcd in a dict, for the rules: keys, revisions, leases on a clock that the test moves, transactions, and lost data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ebb.elastic.rendezvous.etcd import LeaseGone, Unreachable
from ebb.elastic.rendezvous.wire import Compare, Delete, Item, Op, Put

Items = dict[str, Item]


@dataclass
class Lease:
    seconds: int
    expires: float


class Book:
    """`on_put` sees every key that is written, just before. `trouble` says what becomes of a call: "", "lost" or "unanswered"."""

    def __init__(self, *, on_put: Callable[[Put, Items], None] = lambda put, items: None) -> None:
        self.now = 0.0
        self.trouble: Callable[[], str] = lambda: ""
        self._on_put = on_put
        self._next_lease = 1
        self.lose_data()

    def lose_data(self) -> None:
        self.revision = 0
        self.items: Items = {}
        self.leases: dict[int, Lease] = {}
        self.history: list[tuple[int, Items]] = [(0, {})]

    def pass_time(self, now: float) -> None:
        self.now = now
        for number in [number for number, lease in self.leases.items() if lease.expires <= now]:
            self._end(number)

    def put(self, key: str, value: bytes, lease: int = 0) -> int:
        self._ask(lambda: self._write([Put(key, value, lease)]))
        return self.revision

    def transact(self, compares: Sequence[Compare], operations: Sequence[Op]) -> bool:
        held = all(self._holds(compare) for compare in compares)
        self._ask(lambda: self._write(operations) if held else None)
        return held

    def grant(self, ttl_seconds: int) -> int:
        self._ask(lambda: None)
        self._next_lease += 1
        self.leases[self._next_lease] = Lease(ttl_seconds, self.now + ttl_seconds)
        return self._next_lease

    def keep_alive(self, lease: int) -> int:
        self._ask(lambda: None)
        if lease not in self.leases:
            return 0
        self.leases[lease].expires = self.now + self.leases[lease].seconds
        return self.leases[lease].seconds

    def time_to_live(self, lease: int) -> tuple[int, int]:
        self._ask(lambda: None)
        found = self.leases.get(lease)
        return (int(found.expires - self.now), found.seconds) if found else (0, 0)

    def revoke(self, lease: int) -> None:
        self._ask(lambda: self._end(lease))

    def _ask(self, act: Callable[[], None]) -> None:
        trouble = self.trouble()
        if trouble != "lost":
            act()
        if trouble:
            raise Unreachable(trouble)

    def _end(self, lease: int) -> None:
        self.leases.pop(lease, None)
        keys = [key for key, item in self.items.items() if item.lease == lease]
        if keys:
            self._write([Delete(key) for key in keys])

    def _holds(self, compare: Compare) -> bool:
        item = self.items.get(compare.key, Item(key=compare.key))
        if compare.aspect == "value":
            return compare.key in self.items and item.value == compare.equals
        return bool(getattr(item, compare.aspect) == compare.equals)

    def _write(self, operations: Sequence[Op]) -> None:
        for each in operations:
            if isinstance(each, Put) and each.lease and each.lease not in self.leases:
                raise LeaseGone("requested lease not found")
        self.revision += 1
        items = dict(self.items)
        for each in operations:
            before = items.pop(each.key, None)
            if isinstance(each, Put):
                self._on_put(each, self.items)
                items[each.key] = Item(
                    key=each.key,
                    value=each.value,
                    create_revision=before.create_revision if before else self.revision,
                    mod_revision=self.revision,
                    version=(before.version if before else 0) + 1,
                    lease=each.lease,
                )
        self.items = items
        self.history = [*self.history[-40:], (self.revision, items)]
