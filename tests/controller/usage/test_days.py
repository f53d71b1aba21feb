"""The machine usage record: days, restarts, what is kept, and its text."""

import json
from dataclasses import asdict, replace

import pytest

from ebb.api.clock import unix
from ebb.api.usage import (
    BOOT,
    DAY,
    DAYS,
    FEWEST_JOBS,
    IDLE,
    JOB_DAYS,
    KEY,
    LEAVING,
    LONGEST_USER,
    MOST_CHARACTERS,
    MOST_JOBS,
    MOST_OWNERS,
    WHOLE_CHARACTERS,
    Gap,
    GroupUsage,
    MachineUsage,
    MachineUsageError,
    Standing,
    Use,
    Who,
    day_of,
    read,
    spans,
    write,
)
from ebb.controller.usage.machine_time import Meter, Sight, resume, standing
from tests.builders import NOW, make_group, make_job, make_node, make_pod

MIDNIGHT = unix("2026-11-22T00:00:00Z") or 0.0
SPOT = Standing(group="a", usd=0.36, on_demand=3.6, gpus=4)
HELD = replace(SPOT, held=(("job-0001", 0.5), ("job-0002", 0.25)))
ONE_GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}


def usage(begun: float = MIDNIGHT) -> MachineUsage:
    return MachineUsage(begun=begun, until=begun)


def test_a_time_over_midnight_is_of_two_days() -> None:
    assert list(spans(MIDNIGHT - 60, MIDNIGHT + 30)) == [("2026-11-21", 60), ("2026-11-22", 30)]
    assert list(spans(MIDNIGHT, MIDNIGHT)) == []
    assert list(spans(MIDNIGHT + 5, MIDNIGHT)) == []
    assert sum(seconds for _, seconds in spans(NOW, NOW + 10 * DAY + 0.5)) == 10 * DAY + 0.5


def test_what_jobs_hold_and_what_nobody_does_is_the_machine() -> None:
    mine = usage()
    mine.count(HELD, MIDNIGHT, MIDNIGHT + 100)
    (line,) = mine.days["2026-11-22"].values()
    assert (line.seconds, line.job_seconds, line.idle_seconds, line.gpu_seconds) == (100, 75, 25, 300)
    assert (line.usd, line.on_demand, line.job_usd, line.idle_usd) == pytest.approx((0.01, 0.1, 0.0075, 0.0025))
    assert mine.jobs["2026-11-22"]["job-0001"] == Use(seconds=50, usd=0.005, on_demand=0.05, gpu_seconds=200)


@pytest.mark.parametrize(("phase", "field"), [(BOOT, "boot_seconds"), (IDLE, "idle_seconds"), (LEAVING, "leaving_seconds")])
def test_each_phase_has_its_column(phase: str, field: str) -> None:
    mine = usage()
    mine.count(replace(HELD, phase=phase), MIDNIGHT, MIDNIGHT + 8)
    (line,) = mine.days["2026-11-22"].values()
    assert (getattr(line, field), line.boot_seconds + line.idle_seconds + line.leaving_seconds) == (2, 2)


def test_old_days_become_months_and_nothing_is_lost() -> None:
    mine = usage()
    for day in range(100):
        mine.count(HELD, MIDNIGHT + day * DAY, MIDNIGHT + day * DAY + 100)
    mine.fold(MIDNIGHT + 99 * DAY)
    assert (len(mine.days), len(mine.jobs)) == (DAYS + 1, JOB_DAYS + 1)
    assert set(mine.months) == {"2026-11", "2026-12"}
    kept = [line for lines in (*mine.days.values(), *mine.months.values()) for line in lines.values()]
    assert sum(kept, GroupUsage()).seconds == 100 * 100


# --- Restarts -------------------------------------------------------------------------------------------------------------------


def test_a_restart_counts_nothing_twice_and_nothing_not() -> None:
    mine = usage()
    meter = resume(mine, {"m0": Sight(standing=HELD, created=MIDNIGHT - 500)}, MIDNIGHT)
    meter.settle(MIDNIGHT + 60)
    written = write(mine)
    meter.settle(MIDNIGHT + 70)  # never written
    again = read(written)
    resume(again, {"m0": Sight(standing=HELD, created=MIDNIGHT - 500)}, MIDNIGHT + 80).settle(MIDNIGHT + 120)
    assert again.days["2026-11-22"]["a"].seconds == 120  # the usage record began at midnight
    assert again.gaps == ()


def test_while_nobody_looked_all_stood_as_before_and_machines_that_went_count_until_they_were_seen() -> None:
    mine = usage()
    seen = {"went": Sight(standing=HELD, created=MIDNIGHT - 9), "stays": Sight(standing=HELD, created=MIDNIGHT - 9)}
    resume(mine, seen, MIDNIGHT).settle(MIDNIGHT + 100)
    came = Sight(standing=replace(HELD, group="b"), created=MIDNIGHT + 150)
    there = {"stays": Sight(standing=SPOT, created=MIDNIGHT - 9), "came": came}
    resume(mine, there, MIDNIGHT + 200)
    old, new = mine.days["2026-11-22"]["a"], mine.days["2026-11-22"]["b"]
    assert (old.seconds, old.job_seconds) == (100 + 200, 75 + 150)
    assert (old.unseen_seconds, mine.jobs["2026-11-22"]["job-0001"].seconds) == (75, 50 + 100 + 50)
    assert (new.seconds, new.job_seconds, new.idle_seconds) == (50, 0, 50)
    assert mine.gaps == (Gap(begun=MIDNIGHT + 100, ended=MIDNIGHT + 200, vanished=1, came=1),)


def test_a_machine_of_the_same_name_that_is_younger_is_another_one() -> None:
    mine = usage()
    resume(mine, {"m0": Sight(standing=HELD, created=MIDNIGHT - 9)}, MIDNIGHT).settle(MIDNIGHT + 100)
    resume(mine, {"m0": Sight(standing=SPOT, created=MIDNIGHT + 130)}, MIDNIGHT + 200)
    assert mine.days["2026-11-22"]["a"].seconds == 100 + 70


def test_a_long_time_without_a_controller_is_told_also_when_nothing_changed() -> None:
    mine = usage()
    resume(mine, {}, MIDNIGHT + 10)
    resume(mine, {}, MIDNIGHT + 100)
    assert mine.gaps == (Gap(begun=MIDNIGHT + 10, ended=MIDNIGHT + 100, vanished=0, came=0),)


# --- How a machine stands -------------------------------------------------------------------------------------------------------


def test_workers_that_run_hold_their_share_and_those_that_ended_none() -> None:
    one = make_job(container=ONE_GPU, uid="11111111-a")
    other = make_job("other", container=ONE_GPU, uid="22222222-b")
    theirs = [make_pod(other, uid="pod-a"), make_pod(other, 1, phase="Failed", exit_code=1, uid="pod-b")]
    pods = [make_pod(one), make_pod(one, 1), *theirs]
    found = standing(make_node(), pods, make_group(gpus_per_node=4, cpu=16, memory_gib=64), None)
    assert found.held == (("11111111", 0.5), ("22222222", 0.25))
    assert (found.group, round(found.usd, 9), found.on_demand, found.gpus) == ("spot-t4-local-a", 0.3, 1.0, 4)


@pytest.mark.parametrize(
    ("node", "before", "phase"),
    [
        (make_node(ready="False"), None, BOOT),
        (make_node(ready="False"), replace(SPOT, phase=BOOT), BOOT),
        (make_node(), None, IDLE),
        (make_node(ready="Unknown"), SPOT, IDLE),
        (make_node(notice="soon"), SPOT, LEAVING),
        (make_node(taint="ToBeDeletedByClusterAutoscaler"), SPOT, LEAVING),
        (make_node(taint="DeletionCandidateOfClusterAutoscaler"), SPOT, IDLE),
    ],
)
def test_phases(node: dict[str, object], before: Standing | None, phase: str) -> None:
    assert standing(node, [], make_group(), before).phase == phase


def test_whose_a_worker_is_the_reference_that_controls_it_says() -> None:
    pod = make_pod(make_job(container=ONE_GPU, uid="11111111-a"))
    pod["metadata"]["ownerReferences"].insert(0, {"kind": "ConfigMap", "name": "other", "uid": "99999999-z"})
    assert [job for job, _ in standing(make_node(), [pod], make_group(), None).held] == ["11111111"]


# --- The text -------------------------------------------------------------------------------------------------------------------


def test_what_is_written_is_read() -> None:
    mine = usage()
    mine.open, mine.who = {"m0": HELD}, {"job-0001": Who(namespace="elastic-job", job="digits", user="ada")}
    mine.count(HELD, MIDNIGHT, MIDNIGHT + 100)
    mine.miss(HELD, MIDNIGHT + 100, MIDNIGHT + 110)
    mine.gaps = (Gap(begun=MIDNIGHT + 100, ended=MIDNIGHT + 110, vanished=1, came=0),)
    mine.until = MIDNIGHT + 110.123
    mine.months["2026-01"] = {"a": GroupUsage(seconds=7.5)}
    again = read(write(mine))
    assert replace(again, days={}, jobs={}, owners={}) == replace(mine, days={}, jobs={}, owners={})
    assert again.owners == pytest.approx(mine.owners, abs=0.05)
    assert list(again.owners) == [("elastic-job", "ada")]
    (line,), (figures,) = again.days["2026-11-22"].values(), mine.days["2026-11-22"].values()
    assert asdict(line) == pytest.approx(asdict(figures), abs=1e-8)
    assert again.jobs["2026-11-22"].keys() == {"job-0001", "job-0002"}
    assert write(again) == write(mine)


def test_many_jobs_do_not_make_it_too_large_for_a_config_map() -> None:
    mine = usage()
    for day in range(JOB_DAYS):
        for number in range(500):
            uid = f"{day * 500 + number:08x}"
            mine.count(replace(SPOT, held=((uid, 0.123456),)), MIDNIGHT + day * DAY, MIDNIGHT + day * DAY + 1234.567)
            mine.who[uid] = Who(namespace="elastic-job", job=f"a-job-with-some-name-{number}", user="somebody")
    text = write(mine)[KEY]
    assert 0.5 * MOST_CHARACTERS < len(text) < 1.5 * MOST_CHARACTERS
    kept = json.loads(text)["jobs"]
    assert max(kept) == day_of(MIDNIGHT + (JOB_DAYS - 1) * DAY)
    assert {uid for uses in kept.values() for uid in uses} == set(json.loads(text)["who"])


def busy(mine: MachineUsage, jobs: int, day: int = 0, user: str = "somebody") -> None:
    """A day with that many jobs, the later the dearer."""
    for number in range(jobs):
        uid, began = f"{day:04x}{number:04x}", MIDNIGHT + day * DAY
        mine.count(replace(SPOT, held=((uid, 0.123456),)), began, began + 1234.567 + number)
        mine.who[uid] = Who(namespace="elastic-job", job=f"a-job-with-some-name-{number}", user=user)


@pytest.mark.parametrize("jobs", [1200, MOST_JOBS + 1000])
def test_the_newest_day_is_told_whatever_it_has_and_of_too_many_jobs_the_dearest(jobs: int) -> None:
    mine = usage()
    busy(mine, 300)
    busy(mine, jobs, day=1)
    again = read(write(mine))
    (uses,) = again.jobs.values()
    assert len(uses) == min(jobs, MOST_JOBS) == len(again.who)
    assert f"0001{jobs - 1:04x}" in uses
    assert again.cut == ("2026-11-23" if jobs > MOST_JOBS else "")
    # Who goes on from there does not forget it, until that day is told no more.
    busy(again, 10, day=1)
    assert read(write(again)).cut == again.cut
    busy(again, 1200, day=2)
    assert read(write(again)).cut == ""


def test_it_fits_into_a_config_map_whatever_there_is() -> None:
    mine = usage()
    standings = [replace(HELD, group=f"a-group-with-some-name-{number}") for number in range(80)]
    for day in range(-100, 1):
        for one in standings:
            mine.count(one, MIDNIGHT + day * DAY, MIDNIGHT + day * DAY + 1234.567)
    mine.begun = MIDNIGHT - 100 * DAY
    busy(mine, 4000, user="u" * LONGEST_USER)
    mine.fold(MIDNIGHT)
    data = write(mine)
    assert 0.7 * WHOLE_CHARACTERS < len(data[KEY]) <= WHOLE_CHARACTERS
    again = read(data)
    assert (len(again.jobs["2026-11-22"]), again.cut, again.months) == (FEWEST_JOBS, "2026-11-22", {})
    assert again.begun == unix(f"{min(again.days)}T00:00:00Z")
    assert max(again.days) == "2026-11-22"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"schema": "2", KEY: "{}"}, "schema is '2', this version of Ebb reads '1'"),
        ({"schema": "1"}, "delete the ConfigMap"),
        ({"schema": "1", KEY: "{}"}, "KeyError: 'begun'"),
        ({"schema": "1", KEY: "[1]"}, "TypeError"),
        ({"schema": "1", KEY: "no json"}, "delete the ConfigMap"),
    ],
)
def test_what_nobody_can_read_says_what_to_do(data: dict[str, str], said: str) -> None:
    with pytest.raises(MachineUsageError, match="ConfigMap ebb-system/ebb-machines") as refused:
        read(data)
    assert said in str(refused.value)


# --- What owners used -----------------------------------------------------------------------------------------------------------


def owned() -> MachineUsage:
    mine = usage()
    mine.who = {
        "job-0001": Who(namespace="vision", job="a", user="ada"),
        "job-0002": Who(namespace="vision", job="b", user="bea"),
    }
    return mine


def test_owners_used_what_their_jobs_held_by_the_gpu_and_half_is_left_a_week_later() -> None:
    mine = owned()
    mine.count(replace(HELD, gpus=8), MIDNIGHT, MIDNIGHT + 100)
    mine.advance(MIDNIGHT + 100)
    assert mine.owners == pytest.approx({("vision", "ada"): 400.0, ("vision", "bea"): 200.0}, rel=1e-3)
    mine.advance(MIDNIGHT + 100 + 7 * DAY)
    assert mine.owners == pytest.approx({("vision", "ada"): 200.0, ("vision", "bea"): 100.0}, rel=1e-3)
    mine.count(replace(HELD, gpus=0), mine.until, mine.until + 100)
    assert mine.owners[("vision", "ada")] == pytest.approx(250.0, rel=1e-3), "a machine without GPUs counts as one"
    mine.advance(mine.until + 200 * DAY)
    assert mine.owners == {}, "what is next to nothing is forgotten"


def test_how_often_it_is_counted_changes_nothing() -> None:
    once, often = owned(), owned()
    once.count(HELD, MIDNIGHT, MIDNIGHT + DAY)
    once.advance(MIDNIGHT + DAY)
    for hour in range(24):
        often.count(HELD, MIDNIGHT + hour * 3600, MIDNIGHT + (hour + 1) * 3600)
        often.advance(MIDNIGHT + (hour + 1) * 3600)
    assert once.owners == pytest.approx(often.owners, rel=1e-3)
    before = dict(often.owners)
    often.advance(often.until - 3600)
    assert often.owners == before, "a clock that goes back gives nobody more"


def test_what_owners_used_survives_a_controller() -> None:
    mine = owned()
    meter = Meter(mine)
    meter.stand("m0", HELD, MIDNIGHT)
    meter.settle(MIDNIGHT + 1000)
    again = resume(read(write(mine)), {"m0": Sight(standing=HELD, created=MIDNIGHT - 5)}, MIDNIGHT + 1100)
    again.settle(MIDNIGHT + 1100)
    assert again.usage.owners == pytest.approx({("vision", "ada"): 2200.0, ("vision", "bea"): 1100.0}, rel=1e-3)


def test_of_too_many_owners_those_who_used_most_are_kept() -> None:
    mine = usage()
    mine.owners = {("team", f"user-{number}"): float(number + 2) for number in range(MOST_OWNERS + 5)}
    mine.advance(mine.until)
    assert len(mine.owners) == MOST_OWNERS
    assert ("team", "user-4") not in mine.owners


def test_the_jobs_of_each_namespace_have_a_sum_by_month() -> None:
    mine = usage(MIDNIGHT)
    mine.who = {"job-0001": Who(namespace="ebb-team-vision", job="a"), "job-0002": Who(namespace="elastic-job", job="b")}
    mine.count(HELD, MIDNIGHT, MIDNIGHT + 100)
    mine.miss(HELD, MIDNIGHT + 100, MIDNIGHT + 200)  # charged to the jobs, too
    december = (unix("2026-12-01T00:00:00Z") or 0.0) - 50
    mine.count(HELD, december, december + 100)
    vision = mine.spent_in("2026-11")["ebb-team-vision"]
    assert vision == pytest.approx(250 * 0.5 * 0.36 / 3600)
    assert mine.spent_in("2026-11")["elastic-job"] == pytest.approx(vision / 2)
    assert mine.spent_in("2026-12")["ebb-team-vision"] == pytest.approx(50 * 0.5 * 0.36 / 3600)
    assert mine.spent_in("2027-01") == {}
    again = read(write(mine))
    assert again.spent_in("2026-11")["ebb-team-vision"] == pytest.approx(vision, abs=1e-6)
    mine.spent |= {f"2020-{month:02}": {"x": 1.0} for month in range(1, 13)}
    mine.fold(december)
    assert (len(mine.spent), "2020-01" in mine.spent) == (13, False)
