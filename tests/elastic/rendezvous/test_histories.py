"""Random lives of many machines by the real rules, on an etcd in a dict: what must never happen does not, and all end together.

Machines come, leave, die, are paused, stop their workers slowly, see etcd late, get no answers, are cut off from each other; etcd
loses its data.
"""

import contextlib
import json
import random
from pathlib import Path

import pytest

from ebb.elastic.rendezvous.errors import EtcdError
from ebb.elastic.rendezvous.membership import Rules
from ebb.elastic.rendezvous.participant import Participant, RendezvousSettings
from ebb.elastic.rendezvous.state import Record, View
from ebb.elastic.rendezvous.wire import Put
from tests.elastic.rendezvous.book import Book, Items

HISTORIES = 60
CHAOS_SECONDS = 400.0
TICK_SECONDS = 0.25
LEASE_SECONDS = 10


class Machine:
    """Trains in a generation, stops its workers when that should end, and meets the others again."""

    def __init__(self, name: str, world: "World") -> None:
        self.name, self.world = name, world
        settings = RendezvousSettings(run_id="job", address=name, rules=world.rules, output=world.output, planned=world.planned)
        self.life = Participant(
            world.book,
            settings,
            say=lambda text: None,
            refuses=world.refuses,
            is_unreachable=lambda address: world.is_cut(name, address),
            unanswered=lambda addresses: {each for each in addresses if world.is_silent(name, each)},
        )
        self.stores = 0
        self.view: View | None = None
        self.in_generation: Record | None = None
        self.dead = self.left = False
        self.paused_until = self.stopping_until = self.acts_at = 0.0
        self.renewed_at = 0.0
        self.stops = self.failed = False
        self.ids: set[str] = set()
        self.open()

    def open(self) -> None:
        self.stores += 1
        self.life.open(f"{self.name}:{self.stores}", liveness=self.name, failed=self.failed)
        self.failed = False

    def tick(self) -> None:
        now = self.world.now
        if self.dead or self.left or now < self.paused_until:
            return
        self.look()
        if now - self.renewed_at >= LEASE_SECONDS / 5:
            self.renewed_at = now
            with contextlib.suppress(EtcdError):
                self.life.renew()
        if self.view is not None:
            with contextlib.suppress(EtcdError):
                self.life.ask(self.view, now)
        if now < self.acts_at or self.view is None:
            return
        if self.in_generation is None:
            self.meet(now)
        elif self.stops:
            if now >= self.stopping_until:
                self.in_generation, self.stops = None, False
                self.open()
        elif any(self.world.is_cut(self.name, place.address) for place in self.in_generation.members):
            self.in_generation, self.failed = None, True  # at once: its collective, or its store, breaks
            self.open()
        elif self.life.verdict(self.view, now).waiting:
            self.stops = True
            self.stopping_until = now + self.world.random.choice([0.0, 0.3, 3.0, 30.0, 200.0] if self.world.chaos else [0.3])

    def meet(self, now: float) -> None:
        assert self.view is not None
        try:
            outcome = self.life.step(self.view, now)
        except EtcdError:
            outcome = 0.5
        if self.life.id:
            self.ids.add(self.life.id)
        if isinstance(outcome, Record):
            self.in_generation = outcome
        else:
            self.acts_at = now + outcome * self.world.random.random()  # news may come earlier

    def look(self) -> None:
        """At what etcd was a moment ago; never back in time, but for a loss of its data."""
        book = self.world.book
        known = self.view.revision if self.view and self.view.revision <= book.revision else -1
        choices = [each for each in book.history if each[0] >= known]
        revision, items = self.world.random.choice(choices[-4:]) if self.world.chaos else choices[-1]
        if self.view is None or revision != self.view.revision:
            self.view = View.of("/ebb/job/", items.values(), revision, now=self.world.now, before=self.view)


class World:
    def __init__(self, seed: int, output: Path) -> None:
        self.random = random.Random(seed)
        self.output = output
        self.rules = Rules(min_size=self.random.choice([1, 1, 2, 3]), max_size=self.random.choice([3, 4, 6]))
        self.planned = self.random.choice([0, 2, 4])
        self.book = Book(on_put=self.check)
        self.machines: list[Machine] = []
        self.records: list[Record] = []
        self.now = 0.0
        self.chaos = True
        self.losses = 0
        self.cuts: set[tuple[str, str]] = set()  # by name, who does not reach whom

    def is_cut(self, one: str, other: str) -> bool:
        return (one, other) in self.cuts or (other, one) in self.cuts

    def is_silent(self, asking: str, address: str) -> bool:
        machine = next(machine for machine in self.machines if machine.name == address)
        return machine.dead or machine.left or (asking, address) in self.cuts

    def refuses(self, address: str) -> bool:
        """The port of a process that is gone; now and then nothing is heard of it."""
        machine = next(machine for machine in self.machines if machine.name == address)
        return (machine.dead or machine.left) and self.random.random() < 0.7

    def check(self, put: Put, items: Items) -> None:
        """Whenever a generation is founded."""
        if put.key != "/ebb/job/generation":
            return
        record = Record.parse(put.value)
        before = items.get(put.key)
        assert record.number > max([0, *(each.number for each in self.records)]), "numbers only grow, even when data is lost"
        assert self.rules.min_size <= len(record.ids) <= self.rules.max_size
        assert len(set(record.ids)) == len(record.ids)
        names = [place.address for place in record.members]
        assert len(set(names)) == len(names), "a machine is in it once"
        for machine in self.machines:
            if machine.life.id in record.ids and not machine.dead:
                assert machine.in_generation is None, f"{machine.name} still trains in {machine.in_generation}"
        for place in record.members:
            said = json.loads(items[f"/ebb/job/members/{place.id}"].value)
            was_in = before is not None and place.id in Record.parse(before.value).ids
            assert said["after"] == (Record.parse(before.value).number if before and was_in else 0)
        self.records.append(record)

    def trouble(self) -> str:
        return self.random.choices(["", "lost", "unanswered"], [0.94, 0.03, 0.03])[0]

    def live(self) -> list[Machine]:
        return [machine for machine in self.machines if not machine.dead and not machine.left]

    def happen(self) -> None:
        machine = self.random.choice(self.live()) if self.live() else None
        event = self.random.choices(["join", "leave", "die", "pause", "lose", "cut", "heal"], [8, 3, 3, 4, 0.7, 3, 3])[0]
        if event == "join" and len(self.live()) < self.rules.max_size + 2:
            self.machines.append(Machine(f"m{len(self.machines)}", self))
        elif event == "lose":
            self.book.lose_data()
            self.losses += 1
        elif event == "cut":
            few = self.random.sample(self.live(), min(len(self.live()), self.random.choice([1, 1, 2])))
            pairs = {(one.name, other.name) for one in few for other in self.live() if other not in few}
            self.cuts |= pairs | {(other, one) for one, other in pairs if self.random.random() < 0.8}
        elif event == "heal":
            self.cuts.clear()
        elif machine and event == "die":
            machine.dead = True
        elif machine and event == "leave" and self.now >= machine.paused_until:
            machine.left = True
            machine.life.leave(orderly=self.random.random() < 0.5)
        elif machine and event == "pause":
            machine.paused_until = self.now + self.random.choice([1.0, 8.0, 20.0, 60.0])

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += TICK_SECONDS
            self.book.pass_time(self.now)
            if self.chaos and self.random.random() < TICK_SECONDS / 6:
                self.happen()
            for machine in self.random.sample(self.machines, len(self.machines)):
                machine.tick()

    def at_rest(self) -> bool:
        """All that fit are in the newest generation, and see it so."""
        wanted = min(len(self.live()), self.rules.max_size)
        inside = [machine for machine in self.live() if machine.in_generation == self.records[-1] and not machine.stops]
        return len(inside) == wanted == len(self.records[-1].ids)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_random_history(seed: int, tmp_path: Path) -> None:
    world = World(seed, tmp_path)
    world.book.trouble = lambda: world.trouble() if world.chaos else ""
    world.run(CHAOS_SECONDS)

    world.chaos = False
    world.cuts.clear()
    while len(world.live()) < world.rules.min_size:
        world.machines.append(Machine(f"m{len(world.machines)}", world))
    for machine in world.machines:
        machine.stopping_until = min(machine.stopping_until, world.now)
    world.run(260.0)  # a pause of 60 s, a straggler's 120 s, leases, a last call
    assert world.at_rest(), [(each.name, each.life.id, each.in_generation, each.stops) for each in world.live()]
    quiet_since = len(world.records)
    world.run(60.0)
    assert len(world.records) == quiet_since, "nobody disturbs a generation that is whole and has its size"
    keys = [key for key in world.book.items if "/members/" in key]
    assert len(keys) == len(world.live()), "machines that are gone leave nothing"
    print(f"{len(world.machines)} machines, {len(world.records)} generations, {world.losses} losses of data")


@pytest.mark.parametrize(
    ("size", "cuts", "left"),
    [
        pytest.param(2, ["01"], "0", id="two"),
        pytest.param(3, ["02", "12"], "01", id="the-last-of-three"),
        pytest.param(3, ["01", "02"], "12", id="the-first-of-three"),
        pytest.param(3, ["12"], "01", id="two-of-three-that-both-reach-the-first"),
        pytest.param(5, ["03", "04", "13", "14", "23", "24"], "012", id="two-against-three"),
        pytest.param(5, ["02", "03", "04", "12", "13", "14"], "234", id="the-first-two-against-three"),
        pytest.param(4, ["01", "02", "03", "12", "13", "23"], "0", id="nobody-reaches-anybody"),
        pytest.param(2, ["0>1"], "0", id="the-second-reaches-the-first"),
        pytest.param(2, ["1>0"], "0", id="the-first-reaches-the-second"),
        pytest.param(3, ["0>2", "1>2"], "01", id="the-last-reaches-the-others"),
    ],
)
def test_the_most_that_reach_each_other_go_on(size: int, cuts: list[str], left: str, tmp_path: Path) -> None:
    """For as long as the others are cut off, in one generation; then all are together again."""
    world = World(0, tmp_path)
    world.chaos, world.planned, world.rules = False, size, Rules(min_size=1, max_size=6)
    world.machines = [Machine(f"m{number}", world) for number in range(size)]
    world.run(10)
    order = [place.address for place in world.records[-1].members]
    assert len(order) == size
    world.cuts = {(order[int(pair[0])], order[int(pair[-1])]) for pair in cuts}
    world.cuts |= {(order[int(pair[-1])], order[int(pair[0])]) for pair in cuts if ">" not in pair}
    world.run(10)
    count = len(world.records)
    assert [place.address for place in world.records[-1].members] == [order[int(each)] for each in left]
    assert count == 2, "none that would fall apart"
    world.run(300)
    assert len(world.records) == count, "nobody disturbs them"
    world.cuts.clear()
    world.run(10)
    assert world.at_rest()
    assert len(world.records) == count + 1


def test_a_newcomer_says_at_once_whom_it_does_not_reach(tmp_path: Path) -> None:
    """Else the others would stop for it."""
    world = World(0, tmp_path)
    world.chaos, world.planned, world.rules = False, 2, Rules(min_size=1, max_size=6)
    world.machines = [Machine("m0", world)]
    world.run(10)
    world.cuts = {("m1", "m0")}
    newcomer = Machine("m1", world)
    newcomer.look()
    assert newcomer.view is not None
    newcomer.life.step(newcomer.view, world.now)
    assert json.loads(world.book.items[f"/ebb/job/members/{newcomer.life.id}"].value)["unreached"] == ["m0"]
