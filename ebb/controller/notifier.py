"""Sends notifications about jobs: at least once, each with an id that stays the same.

    notifier = Notifier(webhook, changed=queue.add, clock=time.time, metrics=metrics)
    status = notifier.note(key, job, status, now)     # in each round of a job: what was delivered goes into its status
    await notifier.run()

What is to be sent follows from the written status alone (reconciler/notifications.py), and a delivery counts once it is written
there too. A controller that is killed between the two sends again, with the same id: a receiver that drops ids which it has seen
gets each once.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ebb.api.spec import Job
from ebb.api.status import Status
from ebb.controller.metrics import NOTIFICATION_FAILURES, NOTIFICATIONS, Metrics
from ebb.controller.reconciler.notifications import Notification, due, remembered
from ebb.kube.reflector import Key

SENT_AT_ONCE = 4
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 1.0, 300.0
GIVE_UP_SECONDS = 24 * 3600.0
log = logging.getLogger(__name__)


class Receiver(Protocol):
    """The other end: webhook.Webhook, and the fake of the tests."""

    def is_there(self) -> bool:
        """False where the stack wants none."""

    async def send(self, what: Notification) -> str:
        """Deliver it; returns the reason why it was not taken, or ""."""


@dataclass
class _Delivery:
    what: Notification
    key: Key
    done: bool = False
    job_is_gone: bool = False


class Notifier:
    """`changed` brings a job back for another round. `clock` is wall time."""

    def __init__(
        self, receiver: Receiver, *, changed: Callable[[Key], None], clock: Callable[[], float], metrics: Metrics
    ) -> None:
        self._receiver, self._changed, self._clock, self._metrics = receiver, changed, clock, metrics
        self._known: dict[str, _Delivery] = {}  # by id: from when it is due until its job's status says that it was delivered
        self._due: asyncio.Queue[_Delivery] = asyncio.Queue()
        self._slots = asyncio.Semaphore(SENT_AT_ONCE)

    def note(self, key: Key, job: Job, status: Status, now: float) -> Status:
        """Start to send what the job's written status asks for; returns `status` with what has been delivered meanwhile."""
        # Not of `status`: where its write fails, the next round's may give the same thing another time, and so another id.
        news = due(job, job.status, now)
        if not (news or self._known) or not self._receiver.is_there():  # it reads a file: of most jobs there is no news
            return status
        for one in [item for item in self._known.values() if item.key == key and item.what.key in job.status.notified]:
            del self._known[one.what.id]
        for what in news:
            if what.id not in self._known:
                self._known[what.id] = _Delivery(what, key)
                self._due.put_nowait(self._known[what.id])
        for one in self._known.values():
            if one.done and one.what.id.startswith(f"{job.uid}/"):
                status = remembered(status, one.what.key)
        return status

    def forget(self, key: Key) -> None:
        """The job is gone. What is still to be sent about it is sent."""
        for one in [item for item in self._known.values() if item.key == key]:
            one.job_is_gone = True
            if one.done:
                del self._known[one.what.id]

    async def run(self) -> None:
        """Never returns."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._deliver(await self._due.get()))

    async def _deliver(self, one: _Delivery) -> None:
        started, pause = self._clock(), FIRST_RETRY_SECONDS
        while problem := await self._send(one.what):
            self._metrics.count(NOTIFICATION_FAILURES)
            if self._clock() - started > GIVE_UP_SECONDS:
                log.error("%s: not delivered within a day, given up: %s", one.what.id, problem)
                break
            log.warning("%s: not delivered: %s; again in %.0f s", one.what.id, problem, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_RETRY_SECONDS)
        else:
            self._metrics.count(NOTIFICATIONS, f'kind="{one.what.kind}"')
        one.done = True  # also what was given up: the next controller would try it for another day
        if one.job_is_gone:
            del self._known[one.what.id]
        self._changed(one.key)

    async def _send(self, what: Notification) -> str:
        async with self._slots:
            return await self._receiver.send(what)
