"""The simulated month: what it promises holds for other months too, it is the same every time, and its sums are right."""

import random
from dataclasses import replace

import pytest

from benchmarks.queue.__main__ import broken, figures, read_settings
from benchmarks.queue.play import (
    FAIR,
    FIFO,
    GPUS,
    LENT,
    PRIORITY,
    QUOTA,
    QUOTAS,
    STARVED_SECONDS,
    STOP_SECONDS,
    jain,
    max_min,
    play,
)
from benchmarks.queue.trace import HOUR, Ask, month


def ask(name: str, team: str = "vision", *, at: float = 0.0, workers: int = 8, hours: float = 1.0, urgent: bool = False) -> Ask:
    """A job of whole machines: eight are in zone-a, four in zone-b."""
    return Ask(name=name, team=team, user="ada", at=at, workers=workers, gpus_per_worker=8, seconds=hours * HOUR, urgent=urgent)


def crowd(seed: int) -> list[Ask]:
    """More jobs of all sizes than there is room for, by people of four teams."""
    rng = random.Random(seed)
    return [
        ask(
            f"job-{number}", rng.choice("abcd"), at=rng.random() * 48 * HOUR, workers=rng.choice([1, 1, 2, 3, 4, 6, 8]),
            hours=rng.choice([0.3, 1, 4, 12]), urgent=rng.random() < 0.1,
        )
        for number in range(60)
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_nobody_starves_and_no_machine_idles_that_somebody_could_use(seed: int) -> None:
    asks = crowd(seed)
    played = play(asks, FAIR, days=4)
    assert sum(map(len, played.waits.values())) == len(asks), "each job came to its end"
    assert played.starved <= STARVED_SECONDS
    assert played.idle_seconds == 0.0
    assert play(asks, FIFO, days=4).idle_seconds > 0.0, "there was something to lend"


@pytest.mark.parametrize("seed", range(4))
def test_with_quotas_that_teams_lend_nobody_starves_and_nothing_idles_either(seed: int) -> None:
    rng = random.Random(f"quotas-{seed}")
    asks = [replace(one, team=rng.choice(sorted(QUOTAS))) for one in crowd(seed)]
    played = play(asks, LENT, days=4)
    assert sum(map(len, played.waits.values())) == len(asks), "each job came to its end"
    assert (played.starved <= STARVED_SECONDS, played.idle_seconds) == (True, 0.0)
    assert played.lent > 0
    closed = play(asks, QUOTA, days=4)
    assert closed.lent == 0
    assert closed.never > 0, "larger than their team's quota"


def test_an_owner_has_its_quota_within_the_stop_of_those_that_borrow_it() -> None:
    """`vision` has 28 GPUs of 96, and uses 64: the newest job of two stops for four machines of `language`."""
    asks = [
        ask("old", workers=3, hours=9),
        ask("new", at=1, workers=5, hours=9),
        ask("other", "biology", at=2, workers=4, hours=9),
    ]
    asks += [ask("owner", "language", at=3 * HOUR, workers=4, hours=2)]
    played = play(asks, LENT)
    starts = [(at, name) for at, name in played.starts if at > 2]
    assert starts == [(3 * HOUR + STOP_SECONDS, "owner"), (5 * HOUR + STOP_SECONDS, "new")]
    assert (played.stops, played.kept_waiting) == (1, 0.0)
    assert [name for _, name in play(asks, QUOTA).starts] == ["old", "owner"], "the others are larger than their quotas"


def test_the_same_jobs_are_played_the_same_whatever_their_order() -> None:
    asks = crowd(3)
    one, other = play(asks, FAIR, days=3), play(random.Random(9).sample(asks, len(asks)), FAIR, days=3)
    assert one.starts == other.starts
    assert figures(one) == figures(other)


def test_first_come_first_served_is_that() -> None:
    asks = [ask("a"), ask("b", at=1), ask("urgent", at=2, urgent=True), ask("c", at=3)]
    assert [name for _, name in play(asks, FIFO).starts] == ["a", "b", "urgent", "c"]
    assert [name for _, name in play(asks, PRIORITY).starts] == ["a", "urgent", "b", "c"]


def test_who_used_less_is_next() -> None:
    asks = [ask("first", hours=10), ask("again", at=1), ask("other", "language", at=2)]
    assert [name for _, name in play(asks, FAIR).starts] == ["first", "other", "again"]


def test_a_lent_job_stops_when_the_one_before_it_starts_and_does_a_little_of_its_work_again() -> None:
    """`large` waits for all of zone-a, of which `half` leaves two machines to `small`."""
    asks = [
        ask("half", workers=6, hours=2),
        ask("b", at=1, workers=4, hours=9),
        ask("large", at=2),
        ask("small", at=3, workers=2, hours=5),
    ]
    alone = play([one for one in asks if one.name != "small"], FAIR)
    played = play(asks, FAIR)
    starts = [(at, name) for at, name in played.starts if name in ("large", "small")]
    (began,) = (at for at, name in alone.starts if name == "large")
    assert starts == [(3, "small"), (began + STOP_SECONDS, "large"), (began + STOP_SECONDS + HOUR, "small")]
    assert played.stops == 1
    within = (2 * 6 + 9 * 4 + 8 + 5 * 2) * 8 * HOUR
    assert played.used == pytest.approx(within, rel=1e-3), "what is done again is not counted"


def test_machines_that_idle_beside_a_waiting_job_are_counted() -> None:
    asks = [
        ask("half", workers=6, hours=2),
        ask("b", at=1, workers=4, hours=2),
        ask("large", at=2),
        ask("small", at=3, workers=2),
    ]
    assert play(asks, FIFO).idle_seconds == pytest.approx(2 * HOUR, rel=0.01)
    assert play(asks, FAIR).idle_seconds == 0.0


def test_the_index_and_the_fair_parts() -> None:
    assert jain([1.0, 1.0, 1.0, 1.0]) == 1.0
    assert jain([1.0, 0.0, 0.0, 0.0]) == 0.25
    assert max_min(12.0, {"a": 2.0, "b": 20.0, "c": 6.0}) == {"a": 2.0, "b": 5.0, "c": 5.0}
    assert max_min(12.0, {"a": 2.0, "b": 3.0}) == {"a": 2.0, "b": 3.0}


def test_promises_can_be_broken() -> None:
    fine = {
        "longest_hours_without_a_machine": 3.0, "hours_idle_beside_a_job_that_fits": 0.0, "fairness": 0.95, "utilisation": 0.8,
    }  # fmt: skip
    others = {"fair_share_with_lent_quotas": fine, "fair_share_with_quotas": {**fine, "utilisation": 0.7}}
    assert broken({"fair_share": fine, "fifo": fine, **others}) == []
    for figure, value in {
        "longest_hours_without_a_machine": 90.0,
        "hours_idle_beside_a_job_that_fits": 0.1,
        "fairness": 0.85,
        "utilisation": 0.7,
    }.items():
        assert len(broken({"fair_share": {**fine, figure: value}, "fifo": fine, **others})) == 1
        if figure != "fairness":
            worse = {**others, "fair_share_with_lent_quotas": {**fine, figure: value}}
            assert len(broken({"fair_share": fine, "fifo": fine, **worse})) == 1


def test_a_month_has_more_than_it_can_hold_at_once_and_a_bad_setting_is_refused() -> None:
    asks = month(random.Random(1))
    assert asks == month(random.Random(1))
    assert 0.5 < sum(one.gpus * one.seconds for one in asks) / (GPUS * 30 * 24 * HOUR) < 1.0
    assert {one.team for one in asks} == {"vision", "language", "biology", "audio", "robotics"}
    with pytest.raises(SystemExit):
        read_settings(["--days", "0"])
