"""The faults that a controller must survive, each with the promises that are looked at: no double pods, no lost job, no budget
spent.

    figures = await killed(on, points=50, rng=random.Random(7))

`on` is a stage (stage.py), the jobs are stories (stories.py). test_faults.py runs the faults small, benchmarks/faults as the real
thing. A broken promise is an AssertionError; what is returned is for people.
"""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from ebb.controller.election import ATTEMPT_SECONDS, RETRY_SECONDS
from ebb.kube import LEASES
from tests.apiserver.plane import SYSTEM
from tests.apiserver.proxy import LOST, Asked, Line, Refusals
from tests.apiserver.stage import Actor, Stage, anywhere
from tests.apiserver.stories import Crowd, crowd

Figures = dict[str, float]
Say = Callable[[str], None]
LEASE = "ebb-controller"
NOTICED_SECONDS = RETRY_SECONDS + ATTEMPT_SECONDS + 0.5  # in which a leader sees that its Lease was taken
LIFE_SECONDS = 10.0  # from one kill to the next, on a machine that has other things to do as well


def silent(_: str) -> None:
    """Nobody wants to hear of progress."""


async def killed(on: Stage, *, points: int, rng: random.Random, jobs: int = 6, say: Say = silent) -> Figures:
    """kill -9 at random points of a busy run: before a write reaches the API server, or when it is done and nobody was told."""
    actor = await on.controller("first")
    hits = 0
    # One that is killed at one of its first writes again and again may not come to each job: what a job lacks waits for the end.
    patience = on.patience_seconds + points * LIFE_SECONDS
    async with crowd(on.made, on.machines, jobs=jobs, seed=rng.randrange(10**6), patience_seconds=patience) as busy:
        for number in range(points):
            writes, when = anywhere(rng)
            hits += await actor.killed_at(writes, when, seconds=30)
            await asyncio.sleep(rng.choice([0, 0, 0.5, 2.0]))
            await actor.process.start()
            say(f"kill {number + 1} of {points}: {when} write {writes}; {busy.steps} things happened to the jobs so far")
            busy.still_well()
        await busy.all_did(on.patience_seconds)
        return await _ended(busy, kills=points, kills_at_writes=hits)


async def cut_off(on: Stage, *, say: Say = silent) -> Figures:
    """The leader cannot renew its Lease, although it still could write: it stops by itself before the other begins."""
    pair = await _pair(on)
    async with _busy(on) as busy:
        await busy.did(3)
        first, second = await _who_leads(pair)
        began = time.monotonic()
        first.line.cut_leases()
        await second.process.until_leads()
        took = _took_lease(second.line, began)
        code = await first.process.exit_code()
        assert code == 1, f"a leader that lost its lease ends with 1, not {code}: {first.process.said()}"
        _wrote_nothing(first.line, took)
        last = max((one.at for one in first.line.writes()), default=began)
        say(f"the other leads after {took - began:.1f} s; the cut one wrote for the last time {took - last:.1f} s before that")
        await busy.did(6)
        return await _ended(busy, takeover_seconds=took - began, last_write_before_takeover_seconds=took - last)


async def frozen(on: Stage, *, say: Say = silent) -> Figures:
    """The leader stands still, another takes over, and the first wakes up and believes that it leads: two leaders."""
    pair = await _pair(on)
    async with _busy(on) as busy:
        await busy.did(3)
        first, second = await _who_leads(pair)
        began = time.monotonic()
        first.process.pause()
        await second.process.until_leads()
        took = _took_lease(second.line, began)
        await busy.did(3)
        first.process.go_on()
        code = await first.process.exit_code()
        assert code == 1, f"a leader that was overtaken ends with 1, not {code}: {first.process.said()}"
        _wrote_nothing(first.line, took)
        say(f"the other leads after {took - began:.1f} s; the first woke up, wrote nothing and ended")
        await busy.did(3)
        return await _ended(busy, takeover_seconds=took - began)


async def usurped(on: Stage, *, say: Say = silent) -> Figures:
    """Somebody takes the Lease away from a leader that is well."""
    first = await on.controller("first")
    async with _busy(on) as busy:
        await busy.did(3)
        await on.made.kube.patch(LEASES, SYSTEM, LEASE, {"spec": {"holderIdentity": "somebody-else"}})
        taken = time.monotonic()
        code = await first.process.exit_code()
        assert code == 1, f"a leader whose lease was taken ends with 1, not {code}"
        late = max((one.at - taken for one in first.line.writes(taken)), default=0.0)
        say(f"it stopped {late:.1f} s after its lease was taken")
        assert late <= NOTICED_SECONDS, f"it wrote {late:.1f} s after somebody else took the lease"
        await first.process.start()
        await busy.did(3)
        return await _ended(busy, seconds_to_notice=late)


async def deafened(on: Stage, *, times: int, say: Say = silent) -> Figures:
    """Watches stay open and say nothing any more."""
    actor = await on.controller("first", supervised=True)
    longest = 0.0
    async with _busy(on) as busy:
        for number in range(times):
            await busy.did(2, on.patience_seconds)
            began, count = time.monotonic(), actor.line.deafen()
            await busy.all_did(on.patience_seconds)  # or the next silence would be another one for those that wait in this one
            longest = max(longest, time.monotonic() - began)
            say(f"silence {number + 1} of {times}: {count} watches; the jobs got over what happened to them in {longest:.1f} s")
            busy.still_well()
        return await _ended(busy, silences=times, longest_seconds=longest)


async def away(on: Stage, *, seconds: float, back_seconds: float, watched_seconds: float, say: Say = silent) -> Figures:
    """The API server is away, and all machines are late with their heartbeats when it comes back: nothing is deleted.
    `back_seconds`: by then all of them have got through again."""
    actor = await on.controller("first", supervised=True)
    jobs = [await on.place.submit(f"job-{number}", replicas=3) for number in range(4)]
    for job in jobs:
        await job.runs(3)
    before = {job.name: [job.pod_uid(index) for index in range(3)] for job in jobs}
    on.machines.hold_heartbeats()
    await asyncio.to_thread(on.made.processes.stop_api)
    say(f"the API server is away for {seconds:g} s")
    await asyncio.sleep(seconds)
    began = time.monotonic()
    await asyncio.to_thread(on.made.processes.start_api)
    say("it is back; the machines report again one after the other")
    releasing = asyncio.create_task(on.machines.release_heartbeats(back_seconds))
    await on.made.seen.until(
        "the machines were watched", lambda: time.monotonic() > began + watched_seconds, watched_seconds + 10
    )
    await releasing
    for job in jobs:
        await job.runs(3, on.patience_seconds)
        assert [job.pod_uid(index) for index in range(3)] == before[job.name], f"workers of {job.name} were replaced"
        assert (job.status["reclaims"], job.status["failures"]) == (0, 0)
    deleted = [str(one) for one in actor.line.writes() if one.method == "DELETE"]
    assert deleted == []
    return {
        "away_seconds": seconds,
        "deletions": len(deleted),
        "machines": len(on.machines.all),
        "controller_started_again": actor.process.ends,
    }


async def restarted(on: Stage, *, times: int, say: Say = silent) -> Figures:
    """The API server dies and comes back while jobs are busy."""
    await on.controller("first", supervised=True)
    async with _busy(on) as busy:
        for number in range(times):
            await busy.did(3, on.patience_seconds)
            await asyncio.to_thread(on.made.processes.stop_api)
            await asyncio.to_thread(on.made.processes.start_api)
            say(f"restart {number + 1} of {times}; {busy.steps} things happened to the jobs so far")
            busy.still_well()
        await busy.did(len(busy.stories), on.patience_seconds * 2)
        return await _ended(busy, restarts=times)


async def refused(on: Stage, *, rate: float, steps: int, rng: random.Random, say: Say = silent) -> Figures:
    """409, 410, 429 and 500 in place of answers, and answers that get lost after the API server did what was asked."""
    actor = await on.controller("first", supervised=True)
    async with _busy(on) as busy:
        refusals = Refusals(rate, (409, 410, 429, 500, LOST), rng)
        actor.line.refuse(refusals)
        await busy.did(steps, on.patience_seconds * 4)
        actor.line.refuse(None)
        say(f"{refusals.count} of {len(actor.line.asked)} requests refused; {busy.steps} things happened to the jobs")
        return await _ended(busy, refusals=refusals.count, requests=len(actor.line.asked))


async def skewed(on: Stage, *, hours: tuple[float, ...], steps: int, say: Say = silent) -> Figures:
    """Each controller has another idea of what time it is."""
    actor = await on.controller("first", supervised=True)
    async with _busy(on) as busy:
        for shift in hours:
            await busy.did(steps, on.patience_seconds * 2)
            actor.process.kill()
            actor.process.settings["shift_seconds"] = shift * 3600
            await actor.process.start()
            say(f"the clock is {shift:+g} h off; {busy.steps} things happened to the jobs so far")
        await busy.did(steps + len(busy.stories), on.patience_seconds * 2)
        counted = max(story.job.status.get("cost", {}).get("machineSeconds", 0.0) for story in busy.stories)
        return await _ended(busy, most_hours=max(abs(shift) for shift in hours), most_machine_seconds=counted)


async def tokens(on: Stage, *, times: int, lives_seconds: float, say: Say = silent) -> Figures:
    """The file of the service account's token is written anew, and the old token ends: it is never used past its end."""
    path = Path(on.folder) / "token"
    path.write_text(await on.made.token(600))
    actor = await on.controller("first", token_file=str(path), supervised=True)
    async with _busy(on) as busy:
        for number in range(times):
            old = path.read_text()
            path.write_text(await on.made.token(600))
            await busy.did(3, on.patience_seconds)
            await asyncio.sleep(lives_seconds)
            actor.line.revoked.add(old)
            await busy.did(3, on.patience_seconds)
            say(f"token {number + 2} of {times + 1}")
        refused_ones = [str(one) for one in actor.line.asked if one.status == 401]
        assert refused_ones == [], "a token was used past its end"
        sudden = path.read_text()
        path.write_text(await on.made.token(600))
        actor.line.revoked.add(sudden)
        await busy.did(len(busy.stories), on.patience_seconds)
        return await _ended(busy, tokens=times + 2)


def _busy(on: Stage) -> AbstractAsyncContextManager[Crowd]:
    return crowd(on.made, on.machines, jobs=4, seed=3, patience_seconds=on.patience_seconds)


async def _pair(on: Stage) -> tuple[Actor, Actor]:
    return await on.controller("first"), await on.controller("second", leads=False)


async def _who_leads(pair: tuple[Actor, Actor]) -> tuple[Actor, Actor]:
    """The one that leads at this moment, and the one that waits. On a busy machine the first may have lost the lead by itself; it
    ends then, and is started again as by its kubelet."""
    if await _leads(pair[0]):
        return pair
    await pair[0].process.exit_code()
    await pair[0].process.start(leads=False)
    async with asyncio.timeout(60):
        while True:
            for one, other in (pair, pair[::-1]):
                if await _leads(one):
                    return one, other
            await asyncio.sleep(0.05)


async def _leads(one: Actor) -> bool:
    return (await one.process.metrics()).get("ebb_leads") == 1


async def _ended(busy: Crowd, **figures: float) -> Figures:
    await busy.finish()
    return {**figures, "jobs": len(busy.stories), "things_that_happened": busy.steps, "most_pods_of_a_job": busy.most}


def _took_lease(line: Line, since: float) -> float:
    """When this controller's first Lease was written."""
    return min(one.at for one in line.asked if one.lease and one.writes and one.status in (200, 201) and one.at > since)


def _wrote_nothing(line: Line, since: float) -> None:
    """What had passed the fence when the process was stopped is sent when it wakes up, and no fence can help that: the API server
    refuses it, as it names a UID or version that is over. Events it takes; they are for people."""
    took: list[Asked] = [one for one in line.writes(since) if one.status in (200, 201) and not one.path.endswith("/events")]
    assert not took, f"a controller wrote after another one led: {[str(one) for one in took]}"
