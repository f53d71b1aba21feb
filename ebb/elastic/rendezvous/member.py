"""One machine in a job: it keeps its lease alive, watches the others, and waits to meet them. participant.py says what it does.

    member = Member(etcd, settings, say=print)
    record = member.meet("10.1.2.3:41234")     # blocks until this machine is in a new generation
    member.verdict().waiting                   # reads what the watch thread has seen; asks nobody
    member.meet("10.1.2.3:41999")              # leaves that generation, and is in the next
    member.leave()                             # the others need not wait for the lease to expire

Four threads run from the first meeting on: one renews the lease, one watches, one finds out when the next member's process
ends, and one asks the others where they may be cut off from this machine. When etcd is away nothing ends because of it: the
view stays as it was. When it is back and this machine's key is gone (it was paused or cut off, or etcd lost its data), the
verdict says so; at the next meeting it is a newcomer. It starts no processes and knows nothing of torch.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from ebb.elastic.rendezvous.etcd import Etcd, EtcdError, Refused, Unreachable
from ebb.elastic.rendezvous.membership import Verdict, Wait
from ebb.elastic.rendezvous.participant import KEPT_SECONDS, PATIENCE_SECONDS, RETRY_SECONDS, Participant, RendezvousSettings
from ebb.elastic.rendezvous.peer_liveness import NotAsked, PeerLiveness
from ebb.elastic.rendezvous.state import Record, View
from ebb.elastic.rendezvous.wire import Item

_KEPT_RENEWAL_SECONDS = 3600
_COMPLAINT_SECONDS = 10.0
_NEWS_SECONDS = 3.0  # from the end of a lease to a view without its keys: etcd looks every half second


class Member:
    """One for the life of a process. meet, leave, close and stop are for one thread."""

    def __init__(self, etcd: Etcd, settings: RendezvousSettings, *, say: Callable[[str], None]) -> None:
        self._etcd, self._settings, self._say = etcd, settings, say
        self._participant = Participant(etcd, settings, say=say)
        self._view: View | None = None
        self._changed, self._news = threading.Event(), threading.Event()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._liveness: PeerLiveness | None = None
        self._refusal: Refused | None = None
        self._complained_at = float("-inf")

    @property
    def id(self) -> str:
        return self._participant.id

    @property
    def etcd_addresses(self) -> Mapping[str, Sequence[str]]:
        """By name, where etcd was found."""
        return self._etcd.addresses

    @property
    def detection_seconds(self) -> float:
        return self._settings.lease_seconds + _NEWS_SECONDS

    def meet(
        self,
        store: str,
        *,
        failed: bool = False,
        by_itself: bool = False,
        members_only: bool = False,
        until: float | None = None,
    ) -> Record:
        """Leave the present generation, if any, and wait for one with this machine in it; `store` is this machine's own.

        Raises JobClosed; TimeoutError after `until` (time.monotonic); Refused when etcd has never said anything else.
        """
        liveness = self._start()
        self._participant.open(store, liveness=liveness.address, failed=failed, by_itself=by_itself, members_only=members_only)
        while until is None or time.monotonic() < until:
            self._changed.clear()
            outcome = self._step()
            if isinstance(outcome, Record):
                return outcome
            self._changed.wait(outcome)
        raise TimeoutError

    def find_others(self, until: float) -> Record | None:
        """The whole generation of the others, which this machine could join; waits until then while they form one. It joins
        nothing, and leaves nothing."""
        self._start()
        while True:
            self._changed.clear()
            view = self._view
            found = self._participant.whole_without(view) if view is not None else Wait(until=None)
            left = until - time.monotonic()
            if not isinstance(found, Wait):
                return found
            if left <= 0 or self._refusal is not None:
                return None
            self._changed.wait(min(left, PATIENCE_SECONDS))

    def verdict(self) -> Verdict:
        """The state of this machine's generation, as far as is known."""
        return self._participant.verdict(self._view, time.monotonic()) if self._view else Verdict()

    def leave(self, *, orderly: bool = False) -> None:
        """The others see at once that this machine is gone. It may meet them again, as a newcomer. See Participant.leave."""
        self._participant.leave(orderly=orderly)

    def closed(self) -> bool:
        """Raises EtcdError when etcd was never asked before, and does not answer."""
        if self._view is not None:
            return self._view.closed is not None
        return self._etcd.get(f"{self._settings.prefix}closed") is not None

    def close(self, reason: str) -> None:
        """Nobody meets for this job any more. Raises EtcdError."""
        self._etcd.put(f"{self._settings.prefix}closed", reason.encode(), self._etcd.grant(KEPT_SECONDS))

    def stop(self) -> None:
        """Leave, and end the threads."""
        self.leave()
        self._stop.set()
        self._etcd.close()
        self._news.set()
        if self._liveness:
            self._liveness.wake()
        for thread in self._threads:
            thread.join(timeout=1.0)  # one that waits for an etcd that is away ends by itself
        self._threads.clear()
        if self._liveness:
            self._liveness.close()
            self._liveness = None

    def _step(self) -> Record | float:
        view = self._view
        if view is None:
            if self._refusal:
                raise self._refusal
            return PATIENCE_SECONDS
        try:
            return self._participant.step(view, time.monotonic())
        except EtcdError as error:
            self._complain(error)
            return RETRY_SECONDS

    def _complain(self, error: EtcdError) -> None:
        if time.monotonic() - self._complained_at >= _COMPLAINT_SECONDS:
            self._complained_at = time.monotonic()
            self._say(f"waiting for etcd: {error}")

    def _start(self) -> PeerLiveness:
        if self._liveness:
            return self._liveness
        self._stop.clear()
        self._liveness = PeerLiveness(self._settings.address)
        for run, arguments in (
            *((self._keep_leases, ()), (self._watch, ()), (self._ask, ())),
            (self._attend, (self._liveness,)),
        ):
            thread = threading.Thread(target=run, args=arguments, name=f"rendezvous{run.__name__}", daemon=True)
            thread.start()
            self._threads.append(thread)
        return self._liveness

    def _attend(self, liveness: PeerLiveness) -> None:
        while not self._stop.is_set():
            view = self._view
            peer = self._participant.next_peer(view) if view else None
            liveness.attend(peer.words.pulse if peer else "")
            if liveness.wait(RETRY_SECONDS) and view and peer:
                with contextlib.suppress(EtcdError):
                    self._participant.remove_dead(view, peer)
                self._stop.wait(RETRY_SECONDS)  # for the watch to bring it; or etcd is away

    def _ask(self) -> None:
        while not self._stop.is_set():
            self._news.wait(RETRY_SECONDS)
            self._news.clear()
            if view := self._view:
                with contextlib.suppress(EtcdError, NotAsked):  # this machine leaves, and its main thread is at its end
                    self._participant.ask(view, time.monotonic())

    def _keep_leases(self) -> None:
        seconds, renewed_at = self._settings.lease_seconds / 5, time.monotonic()
        wait = seconds
        while not self._stop.wait(wait):
            view, wait = self._view, seconds
            try:
                if not self._participant.renew():
                    self._changed.set()
                if view and view.record_lease and time.monotonic() - renewed_at > _KEPT_RENEWAL_SECONDS:
                    self._etcd.keep_alive(view.record_lease)
                    renewed_at = time.monotonic()
            except EtcdError:
                wait = min(seconds, RETRY_SECONDS)

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except Refused as error:
                self._refusal = error
                self._changed.set()
                self._stop.wait(PATIENCE_SECONDS)
            except Unreachable as error:
                if self._view is None:
                    self._complain(error)
                self._stop.wait(RETRY_SECONDS)
            except EtcdError:  # the history is cut off: list again
                continue

    def _follow(self) -> None:
        prefix = self._settings.prefix
        found, revision = self._etcd.list(prefix)
        items = {item.key: item for item in found}
        self._publish(items, revision)
        for events in self._etcd.watch(prefix, revision + 1, self._stop):
            for event in events:
                items.pop(event.item.key, None)
                if not event.deleted:
                    items[event.item.key] = event.item
            self._publish(items, events[-1].item.mod_revision)

    def _publish(self, items: dict[str, Item], revision: int) -> None:
        prefix = self._settings.prefix
        self._view = View.of(prefix, items.values(), revision, now=time.monotonic(), before=self._view)
        self._changed.set()
        self._news.set()
