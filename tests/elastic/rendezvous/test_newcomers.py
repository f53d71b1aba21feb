"""A newcomer, or a member that has left, and a generation: whole, dead, paused, out of reach. Real rules, an etcd in a dict."""

from pathlib import Path

import pytest

from ebb.elastic.rendezvous.membership import Rules
from ebb.elastic.rendezvous.participant import LEFT_BEHIND, Participant, RendezvousSettings
from ebb.elastic.rendezvous.state import Record, View
from tests.elastic.rendezvous.book import Book

LEASE_SECONDS = 10


class World:
    """Machines a and b train in generation 1; n is a newcomer. The ports of `refusing` refuse, those of `unreachable` do not
    answer; `asked` are whom n has asked."""

    def __init__(self, folder: Path) -> None:
        self.book, self.folder = Book(), folder
        self.refusing: set[str] = set()
        self.unreachable: set[str] = set()
        self.asked: list[str] = []
        self.views: dict[str, View] = {}
        self.said: list[str] = []
        self.lives = {name: self.life(name) for name in "ab"}
        met: dict[str, int] = {}
        while len(met) < 2:
            met |= {name: found.number for name in "ab" if name not in met and isinstance(found := self.step(name), Record)}
        assert met == {"a": 1, "b": 1}
        self.lives["n"] = self.life("n")
        self.step("n")

    def life(self, name: str) -> Participant:
        def refuses(address: str) -> bool:
            self.asked.append(address)
            return address in self.refusing

        settings = RendezvousSettings(
            run_id="job",
            address=name,
            rules=Rules(min_size=1, max_size=2),
            planned=2 if name in "ab" else 1,
            lease_seconds=LEASE_SECONDS,
            output=self.folder,
        )
        life = Participant(
            self.book,
            settings,
            say=lambda text: self.said.append(f"{name}: {text}"),
            refuses=refuses,
            is_unreachable=lambda address: address in self.unreachable,
        )
        life.open(f"{name}:1", liveness=name)
        return life

    def step(self, name: str) -> Record | float:
        book = self.book
        self.views[name] = View.of("/ebb/job/", book.items.values(), book.revision, now=book.now, before=self.views.get(name))
        return self.lives[name].step(self.views[name], book.now)

    def newcomer(self, seconds: float, *, renewing: str = "") -> Record | None:
        return self.wait("n", seconds, renewing=renewing)

    def wait(self, who: str, seconds: float, *, renewing: str = "") -> Record | None:
        """The generation that one is in after so long, while these renew their leases every two seconds."""
        self.asked.clear()
        for tick in range(int(seconds * 2)):
            self.book.pass_time(self.book.now + 0.5)
            for name in [*renewing, who] if tick % 4 == 3 else who:
                self.lives[name].renew()
            found = self.step(who)
            if isinstance(found, Record):
                return found
        return None


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_all_members_are_dead(world: World) -> None:
    world.refusing = {"a", "b"}
    found = world.newcomer(5.0)
    assert found is not None
    assert (found.number, [place.address for place in found.members]) == (2, ["n"])
    assert world.book.now < LEASE_SECONDS, "nobody waited for a lease"


def test_those_that_stand_still_do_not_refuse_and_are_left_to_their_leases(world: World) -> None:
    assert world.newcomer(LEASE_SECONDS - 1) is None
    assert set(world.asked) == {"a"}, "one that is there is enough: whether the other is dead is for that one to find out"
    found = world.newcomer(LEASE_SECONDS)
    assert found is not None
    assert found.number == 2


def test_a_machine_that_was_taken_for_dead_is_told_so_when_it_wakes(world: World) -> None:
    found = world.wait("n", LEASE_SECONDS + 1, renewing="a")
    assert found is None, "a trains alone until it meets n"
    assert world.said == []
    world.lives["b"].renew()
    world.step("b")
    assert world.said == [f"b: {LEFT_BEHIND}"]
    world.step("b")
    assert len(world.said) == 1


def test_ports_behind_a_wall_that_refuses_are_no_proof_while_leases_are_renewed(world: World) -> None:
    world.refusing = {"a", "b"}  # of network policies some drop, some refuse: as if no process were there
    assert world.newcomer(60.0, renewing="ab") is None
    assert {item.key.rpartition("/")[2] for item in world.book.items.values() if "/members/" in item.key} == {
        world.lives[name].id for name in "abn"
    }


def test_one_of_two_is_dead_and_the_other_out_of_reach(world: World) -> None:
    world.refusing = {"a"}
    assert world.newcomer(LEASE_SECONDS - 2, renewing="b") is None
    assert world.views["n"].is_broken, "b sees that, and comes to meet the others"
    assert world.lives["b"].verdict(world.views["n"], world.book.now).lost


def test_a_member_does_not_wait_for_the_lease_of_a_silent_machine(world: World) -> None:
    """Its connections to it have failed, so it comes to meet the others."""
    world.unreachable = {"b"}
    world.lives["a"].open("a:2", liveness="a")
    found = world.wait("a", LEASE_SECONDS / 2)
    assert found is not None
    assert "b" not in [place.address for place in found.members]


@pytest.mark.parametrize(
    ("unreachable", "renewing"),
    [pytest.param("", "", id="it-stands-still"), pytest.param("b", "b", id="only-this-machine-does-not-reach-it")],
)
def test_a_member_waits_for_one_that_may_live(world: World, unreachable: str, renewing: str) -> None:
    world.unreachable = set(unreachable)
    world.lives["a"].open("a:2", liveness="a")
    assert world.wait("a", LEASE_SECONDS - 2, renewing=renewing) is None
