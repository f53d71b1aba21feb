"""When a machine counts as silent, and when that is not to be believed."""

import pytest

from ebb.controller.node_heartbeats import BURST, GAP, LATE, NOBODY, TOO_MANY, HeartbeatReport, NodeHeartbeats

NODES = tuple(f"n{index}" for index in range(10))


class Kubelets:
    """Machines that renew every ten seconds, each at its own tenth; `dead` ones do not any more."""

    def __init__(self, nodes: tuple[str, ...] = NODES) -> None:
        self.silence, self.nodes, self.dead, self.now = NodeHeartbeats(), nodes, set[str](), 0.0
        self.pass_seconds(20)

    def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds * 10):
            self.now = round(self.now + 0.1, 1)
            for index, node in enumerate(self.nodes):
                if node not in self.dead and round(self.now * 10 - index * 100 / len(self.nodes)) % 100 == 0:
                    self.silence.heard(node, renewed=str(self.now), duration_seconds=40, now=self.now)

    def look(self, *, unknown: tuple[str, ...] = (), stale: str = "") -> HeartbeatReport:
        return self.silence.look(known=set(self.nodes), unknown=set(unknown), stale=stale, now=self.now)


def test_a_machine_is_silent_twenty_three_seconds_after_its_last_renewal_was_seen() -> None:
    kubelets = Kubelets()
    kubelets.dead = {"n0"}  # whose turn was just now
    kubelets.pass_seconds(22)
    assert kubelets.look().silent == frozenset()
    kubelets.pass_seconds(1)
    look = kubelets.look()
    assert (set(look.silent), look.doubt) == ({"n0"}, "")


def test_a_lease_of_a_longer_duration_is_waited_for_in_proportion() -> None:
    silence = NodeHeartbeats()
    for node, renewed in (("slow", "1"), ("other", "1")):
        silence.heard(node, renewed=renewed, duration_seconds=120, now=0)
    silence.heard("other", renewed="2", duration_seconds=120, now=25)
    for now, silent in ((32.9, set()), (33.0, {"slow"})):
        assert silence.look(known={"slow", "other"}, unknown=(), stale="", now=now).silent == silent


def test_only_a_change_of_the_renewal_is_a_sign_of_life() -> None:
    silence = NodeHeartbeats()
    for second in range(24):
        silence.heard("stuck", renewed="the same", duration_seconds=40, now=second)
        silence.heard("alive", renewed=str(second), duration_seconds=40, now=second)
    assert silence.look(known={"stuck", "alive"}, unknown=(), stale="", now=23.5).silent == {"stuck"}


def test_it_says_when_to_look_again() -> None:
    silence = NodeHeartbeats()
    silence.heard("a", renewed="1", duration_seconds=40, now=5)
    silence.heard("b", renewed="1", duration_seconds=40, now=7)
    assert silence.look(known={"a", "b"}, unknown=(), stale="", now=8).again_at == 28
    assert NodeHeartbeats().look(known={"a"}, unknown=(), stale="", now=8).again_at is None


def test_a_machine_without_a_lease_is_never_silent() -> None:
    assert NodeHeartbeats().look(known={"bare"}, unknown=(), stale="", now=1e6) == HeartbeatReport()


def test_a_lease_without_a_machine_counts_for_nothing() -> None:
    kubelets = Kubelets()
    kubelets.silence.heard("removed", renewed="1", duration_seconds=40, now=0)
    assert kubelets.look() == HeartbeatReport(again_at=kubelets.look().again_at)
    kubelets.silence.forget("removed")


@pytest.mark.parametrize(
    ("machines", "dead", "doubt"),
    [(2, 1, ""), (2, 2, TOO_MANY), (3, 1, ""), (3, 2, TOO_MANY), (6, 2, ""), (6, 3, TOO_MANY), (10, 3, ""), (10, 4, TOO_MANY)],
)
def test_silence_of_more_than_a_third_is_in_doubt(machines: int, dead: int, doubt: str) -> None:
    kubelets = Kubelets(NODES[:machines])
    kubelets.dead = set(NODES[:dead])
    kubelets.pass_seconds(60)
    look = kubelets.look()
    assert (set(look.silent), look.doubt) == (set(NODES[:dead]), doubt)


def test_the_only_machine_is_never_believed_to_be_dead() -> None:
    kubelets = Kubelets(("n0",))
    kubelets.dead = {"n0"}
    kubelets.pass_seconds(60)
    assert kubelets.look() == HeartbeatReport(silent=frozenset({"n0"}), doubt=NOBODY, again_at=kubelets.now + 1)


@pytest.mark.parametrize("machines", [10, 50, 100])
def test_when_nobody_can_renew_any_more_the_first_to_look_silent_is_not_believed(machines: int) -> None:
    """An API server that refuses the kubelets and not us: they fall silent one after the other, over ten seconds."""
    nodes = tuple(f"n{index}" for index in range(machines))
    kubelets = Kubelets(nodes)
    kubelets.dead = set(nodes)
    seen = set()
    for _ in range(40):
        kubelets.pass_seconds(1)
        look = kubelets.look()
        assert look.doubt or not look.silent
        seen.add(look.doubt)
    assert LATE in seen
    assert {TOO_MANY, NOBODY} & seen


def test_when_everybody_is_slow_to_renew_those_that_are_a_little_slower_are_not_believed_dead() -> None:
    """An overloaded API server: each machine renews every 23 s, give or take half a second."""
    silence, now, doubts = NodeHeartbeats(), 0.0, set[str]()
    nodes = [f"n{index}" for index in range(100)]
    for turn in range(1000):
        now += 0.23
        silence.heard(nodes[turn % 100], renewed=str(turn), duration_seconds=40, now=now + (turn % 7 - 3) / 6)
        look = silence.look(known=set(nodes), unknown=(), stale="", now=now)
        doubts |= {look.doubt} if look.silent else set()
    assert doubts == {LATE}


@pytest.mark.parametrize("dead", [1, 10, 30])
def test_a_burst_of_dead_machines_among_a_hundred_is_believed_within_its_time(dead: int) -> None:
    nodes = tuple(f"n{index}" for index in range(100))
    kubelets = Kubelets(nodes)
    kubelets.dead = set(nodes[:: 100 // dead][:dead])
    for _ in range(24):
        kubelets.pass_seconds(1)
        assert kubelets.look().doubt == ""
    assert kubelets.look().silent == kubelets.dead


def test_after_doubt_every_machine_has_its_turn_before_the_rest_are_believed_dead() -> None:
    """Machines that come back do so one after the other: the last third of them must not be taken for dead meanwhile."""
    kubelets = Kubelets()
    kubelets.dead = set(NODES[:8])
    kubelets.pass_seconds(40)
    assert kubelets.look().doubt == TOO_MANY
    kubelets.dead = {"n0"}
    for _ in range(13):
        kubelets.pass_seconds(1)
        assert kubelets.look().doubt == TOO_MANY
    kubelets.pass_seconds(13)
    assert kubelets.look() == HeartbeatReport(silent=frozenset({"n0"}), again_at=kubelets.look().again_at)


def test_a_gap_of_the_watch_begins_every_clock_anew() -> None:
    kubelets = Kubelets()
    kubelets.dead = {"n0"}
    kubelets.pass_seconds(22)
    kubelets.silence.restart(kubelets.now)
    kubelets.pass_seconds(22)
    assert kubelets.look().silent == frozenset()
    kubelets.pass_seconds(2)
    assert kubelets.look() == HeartbeatReport(silent=frozenset({"n0"}), again_at=kubelets.look().again_at)


def test_right_after_a_gap_what_kubernetes_says_of_a_machine_is_not_believed_either() -> None:
    """While the API server was away nobody could renew, so Kubernetes may take everybody for lost when it is back."""
    kubelets = Kubelets()
    kubelets.silence.restart(kubelets.now)
    kubelets.pass_seconds(12)
    assert kubelets.look(unknown=("n1",)).doubt == GAP
    kubelets.pass_seconds(3)
    assert kubelets.look(unknown=("n1",)).doubt == ""


def test_machines_that_kubernetes_takes_for_lost_count_among_the_silent() -> None:
    kubelets = Kubelets()
    kubelets.pass_seconds(10)
    assert kubelets.look(unknown=("n1", "n2")).doubt == BURST, "there may be more of them in a moment"
    kubelets.pass_seconds(2)
    assert kubelets.look(unknown=("n1", "n2")).doubt == ""
    assert kubelets.look(unknown=("n1", "n2", "n3", "n4")).doubt == TOO_MANY


def test_an_old_copy_of_the_machines_is_no_ground_to_act_on() -> None:
    kubelets = Kubelets()
    assert kubelets.look(stale="nothing was heard for 90 s").doubt == "nothing was heard for 90 s"
    assert kubelets.look().doubt == "", "nobody is silent, so there is nothing to doubt"


def test_one_missed_renewal_is_no_silence() -> None:
    """The kubelet tries five times within a second, then waits for its next turn: a gap of 20 s."""
    kubelets = Kubelets()
    kubelets.dead = {"n0"}
    kubelets.pass_seconds(15)
    kubelets.dead = set()
    for _ in range(15):
        kubelets.pass_seconds(1)
        assert kubelets.look().silent == frozenset()


def test_the_time_without_a_sign_of_life_is_the_operators_to_set() -> None:
    silence = NodeHeartbeats(60)
    for node in NODES:
        silence.heard(node, renewed="1", duration_seconds=40, now=0)
    silence.heard("n1", renewed="2", duration_seconds=40, now=50)
    for now, silent in ((59.9, False), (60.0, True)):
        assert ("n0" in silence.look(known=set(NODES), unknown=(), stale="", now=now).silent) == silent
