"""Costs of jobs, users and days, from jobs, records and the machine usage record; and the estimate for a new job."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from ebb.api.clock import stamp, unix
from ebb.api.contract import ANNOTATION_BILLED, ANNOTATION_OWNER, LABEL_RECORD, LABEL_USER
from ebb.api.platform import parse
from ebb.api.spec import Job, user_of
from ebb.api.status import Status
from ebb.api.usage import DAY, HOUR, LEAVING, NAME, NAMESPACE, MachineUsage, Standing, Who, write
from ebb.client.costs import By, CostReport, TeamCost, Wanted, bills, costs, estimate, report_of, whole_days
from ebb.client.costs.bills import Window
from ebb.client.errors import BadRequest, ClientError
from ebb.client.platform.connection import Ebb
from ebb.controller.reconciler.records import record as made_record
from ebb.kube import Object
from tests.cli.world import NS, FakeKube, elastic_job, node_group, platform_json, platform_map

MIDNIGHT = unix("2026-11-22T00:00:00Z") or 0.0
NOW = MIDNIGHT + 12 * HOUR
SPOT = Standing(group="spot-t4-local-a", usd=0.3, on_demand=1.0, gpus=1)
MANAGER = Standing(group="manager", usd=0.1, on_demand=0.1)


def uid(number: int) -> str:
    return f"{number:08x}-1111-4222-8333-444455556666"


def job(number: int, hours: float, *, began: float, user: str = "", **status: Any) -> Object:
    """One that had a spot machine for so long, and has it still if `ended` is not said."""
    cost = {"machineSeconds": hours * HOUR, "usdSpent": hours * 0.3, "usdOnDemand": hours, "at": stamp(NOW)}
    made = elastic_job(f"job-{number}", cost=cost, **status)
    made["metadata"] |= {"uid": uid(number), "creationTimestamp": stamp(began), "labels": {LABEL_USER: user} if user else {}}
    return made


def record(number: int, hours: float, *, began: float, ended: float, user: str = "", reason: str = "Deleted") -> Object:
    return {
        "uid": uid(number), "job": f"job-{number}", "namespace": NS, "submittedBy": user, "state": "Running", "reason": reason,
        "created": stamp(began), "ended": stamp(ended), "machineSeconds": hours * HOUR, "usdSpent": hours * 0.3,
        "usdOnDemand": hours, "zone": "local-a", "reclaims": 2,
    }  # fmt: skip


def record_map(told: Object) -> Object:
    metadata = {"name": f"ebb-record-{told['job']}", "namespace": NS, "labels": {LABEL_RECORD: "true"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"record.json": json.dumps(told)}}


def usage_map(usage: MachineUsage) -> Object:
    metadata = {"name": NAME, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": write(usage)}


def usage(begun: float = MIDNIGHT - 3 * DAY, until: float = NOW) -> MachineUsage:
    """Since then a machine of the platform."""
    made = MachineUsage(begun=begun, until=until)
    made.count(MANAGER, begun, until)
    return made


def use(made: MachineUsage, number: int, began: float, hours: float) -> None:
    """A machine that the job held, and 6 minutes more on its way out."""
    made.count(replace(SPOT, held=((uid(number)[:8], 1.0),)), began, began + hours * HOUR)
    made.count(replace(SPOT, phase=LEAVING), began + hours * HOUR, began + (hours + 0.1) * HOUR)


def make_report(
    jobs: list[Object], records: list[Object], made: MachineUsage | None, days: float = 0, by: By = By.JOB
) -> CostReport:
    window = whole_days(NOW, days * DAY)
    return report_of(bills(jobs, records, made, window), made, window, by)


def test_jobs_and_the_rest_are_the_machines() -> None:
    made = usage()
    use(made, 1, MIDNIGHT + HOUR, 2)
    use(made, 2, MIDNIGHT + 4 * HOUR, 1)
    report = make_report(
        [job(1, 2, began=MIDNIGHT + HOUR, user="ada")],
        [record(2, 1, began=MIDNIGHT + 4 * HOUR, ended=MIDNIGHT + 5 * HOUR, user="bob")],
        made,
    )
    assert [(row.name, row.user, row.state) for row in report.rows] == [("job-1", "ada", "running"), ("job-2", "bob", "deleted")]
    assert [row.usd for row in report.rows] == pytest.approx([0.6, 0.3])
    assert [row.gpu_hours for row in report.rows] == pytest.approx([2, 1])
    assert report.machines is not None
    assert report.idle is not None
    assert report.platform is not None
    assert (report.machines.usd, report.idle.usd, report.platform.usd) == pytest.approx((0.9 + 0.06 + 1.2, 0.06, 1.2))
    assert (report.idle.scale_down_hours, report.idle.idle_hours, report.idle.boot_hours) == pytest.approx((0.2, 0, 0))
    assert report.difference_usd == pytest.approx(0)


def test_a_bill_that_is_not_what_the_machines_did_shows() -> None:
    made = usage()
    use(made, 1, MIDNIGHT + HOUR, 2)
    report = make_report([job(1, 1.5, began=MIDNIGHT + HOUR)], [], made)
    assert report.difference_usd == pytest.approx(0.15)


def test_of_a_job_that_began_before_the_days_asked_for_those_days_count() -> None:
    made = usage()
    use(made, 1, MIDNIGHT - 5 * HOUR, 5)
    use(made, 1, MIDNIGHT + 5 * HOUR, 1)
    began = job(1, 6, began=MIDNIGHT - 5 * HOUR)
    (row,) = make_report([began], [], made).rows
    assert (row.machine_hours, row.usd) == pytest.approx((1, 0.3))
    assert make_report([began], [], made, days=1).rows[0].usd == pytest.approx(1.8)


def test_of_one_that_the_usage_record_does_not_reach_back_to_time_decides_and_it_is_said() -> None:
    made = usage(begun=MIDNIGHT + HOUR)
    report = make_report([job(1, 6, began=MIDNIGHT - 12 * HOUR)], [], made)
    assert report.rows[0].divided
    assert report.rows[0].usd == pytest.approx(0.9)
    assert any("divided by time" in note for note in report.notes)
    assert any("The machine usage record begins at 2026-11-22T01:00:00Z" in note for note in report.notes)


def test_a_job_that_ended_before_is_not_in_it() -> None:
    old = record(1, 6, began=MIDNIGHT - 20 * HOUR, ended=MIDNIGHT - HOUR)
    assert make_report([], [old], usage()).rows == ()


def test_one_of_which_nothing_is_left_counts_by_the_usage_record() -> None:
    made = usage()
    use(made, 1, MIDNIGHT + HOUR, 2)
    use(made, 2, MIDNIGHT + 4 * HOUR, 1)
    made.who[uid(1)[:8]] = Who(namespace="other", job="theirs", user="eve")
    report = make_report([], [], made)
    assert [(row.name, row.user, row.usd) for row in report.rows] == [
        ("theirs", "eve", pytest.approx(0.6)),
        ("00000002", "", 0.3),
    ]
    assert report.difference_usd == pytest.approx(0)


def test_by_user_and_by_day() -> None:
    made = usage()
    use(made, 1, MIDNIGHT - 2 * HOUR, 1)
    use(made, 2, MIDNIGHT + 4 * HOUR, 1)
    use(made, 3, MIDNIGHT + 6 * HOUR, 2)
    jobs = [job(1, 1, began=MIDNIGHT - 2 * HOUR, user="ada"), job(2, 1, began=MIDNIGHT + 4 * HOUR, user="ada")]
    jobs.append(job(3, 2, began=MIDNIGHT + 6 * HOUR))
    users = make_report(jobs, [], made, days=1, by=By.USER)
    assert {row.name: row.jobs for row in users.rows} == {"ada": 2, "": 1}
    assert [row.usd for row in users.rows] == pytest.approx([0.6, 0.6])
    assert any("no proof" in note for note in users.notes)
    days = make_report(jobs, [], made, days=1, by=By.DAY)
    assert [row.name for row in days.rows] == ["2026-11-22", "2026-11-21"]
    assert [row.usd for row in days.rows] == pytest.approx([0.9, 0.3])
    assert [row.idle_usd for row in days.rows] == pytest.approx([0.06, 0.03])
    assert [row.machines_usd for row in days.rows] == pytest.approx([0.96 + 1.2, 0.33 + 2.4])
    assert days.machines is not None
    assert sum(row.machines_usd or 0 for row in days.rows) == pytest.approx(days.machines.usd)
    assert not any("no proof" in note for note in days.notes)


def test_months_are_told_where_days_are_not_known_any_more() -> None:
    made = usage(begun=MIDNIGHT - 100 * DAY)
    made.fold(NOW)
    months = [row.name for row in make_report([], [], made, days=365, by=By.DAY).rows if len(row.name) == 7]
    assert months == ["2026-09", "2026-08"]


def test_a_window_within_the_days_that_are_kept_has_no_month() -> None:
    made = usage(begun=MIDNIGHT - 100 * DAY)
    made.fold(NOW)
    report = make_report([], [], made, days=55, by=By.DAY)
    assert [row.name for row in report.rows][-2:] == ["2026-09-29", "2026-09-28"]
    assert report.machines is not None
    assert report.machines.hours == pytest.approx(55 * 24 + 12)


def test_of_a_day_with_more_jobs_than_the_usage_record_holds_it_is_said() -> None:
    made = usage()
    use(made, 1, MIDNIGHT - 5 * HOUR, 10)
    made.cut = "2026-11-22"
    report = make_report([job(1, 10, began=MIDNIGHT - 5 * HOUR)], [], made)
    assert report.rows[0].divided
    assert any("on, of that day the 1 dearest" in note for note in report.notes)


def test_what_nobody_looked_at_is_told() -> None:
    made = usage()
    made.miss(replace(SPOT, held=((uid(1)[:8], 1.0),)), MIDNIGHT, MIDNIGHT + HOUR)
    report = make_report([job(1, 1, began=MIDNIGHT)], [], made)
    assert report.unseen is not None
    assert report.unseen.usd == pytest.approx(0.3)
    assert report.difference_usd == pytest.approx(0)


def test_without_a_usage_record_there_are_bills() -> None:
    report = make_report([job(1, 2, began=MIDNIGHT + HOUR)], [], None)
    assert report.jobs.usd == pytest.approx(0.6)
    assert (report.machines, report.idle, report.platform, report.unseen, report.difference_usd) == (None,) * 5
    assert "There is no machine usage record" in report.notes[-1]


@pytest.mark.parametrize(
    ("labels", "annotations", "user"),
    [
        ({LABEL_USER: "ada"}, {}, "ada"),
        ({LABEL_USER: "ada"}, {ANNOTATION_BILLED: "ada@lab.example"}, "ada@lab.example"),
        ({LABEL_USER: "ada", ANNOTATION_BILLED: "vision"}, {}, "vision"),
        ({LABEL_USER: "bob"}, {ANNOTATION_BILLED: "bob", ANNOTATION_OWNER: "ada"}, "ada"),
        ({}, {}, ""),
    ],
)
def test_who_is_named_is_in_the_record_too(labels: Object, annotations: Object, user: str) -> None:
    value = job(1, 1, began=NOW)
    value["metadata"] |= {"labels": labels, "annotations": annotations}
    assert user_of(value["metadata"]) == user
    found = json.loads(made_record(Job.of(value), Status(), NOW)["data"]["record.json"])
    assert found["submittedBy"] == user


def test_a_window_begins_with_a_day() -> None:
    assert whole_days(NOW, 0) == Window(since=MIDNIGHT, now=NOW)
    assert whole_days(NOW, 7 * DAY).first_day == "2026-11-15"
    assert whole_days(NOW, float("inf")).since == 0


# --- Against a platform ---------------------------------------------------------------------------------------------------------


def ask(*objects: Object, **options: Any) -> CostReport:
    kube = FakeKube(platform_map(), *objects)
    ebb = Ebb(kube=kube, platform=parse(platform_map()["data"]), namespace=NS)
    return asyncio.run(costs(ebb, **options))


def test_the_usage_record_and_running_jobs_go_on_until_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)
    made = usage(begun=NOW - HOUR, until=NOW - 60)
    made.days.clear()
    running = replace(SPOT, held=((uid(1)[:8], 1.0),))
    made.count(running, NOW - HOUR, NOW - 60)
    made.open["m0"] = running
    cost = {"machineSeconds": HOUR - 30, "usdSpent": 0.3 - 0.3 * 30 / HOUR, "usdPerHour": 0.3, "machines": 1}
    value = job(1, 0, began=NOW - HOUR)
    value["status"]["cost"] |= {**cost, "at": stamp(NOW - 30)}
    report = ask(value, usage_map(made), record_map(record(2, 1, began=NOW - 9 * HOUR, ended=NOW - 8 * HOUR)))
    assert [row.usd for row in report.rows] == pytest.approx([0.3, 0.3])
    assert report.machines is not None
    assert report.machines.usd == pytest.approx(0.3)


def test_a_spoilt_usage_record_is_an_error_with_a_fix_and_spoilt_records_are_left_out() -> None:
    spoilt = {**record_map(record(1, 1, began=NOW, ended=NOW)), "data": {"record.json": "{}"}}
    assert ask(spoilt).rows == ()
    with pytest.raises(ClientError, match="ebb-machines: schema is '9'"):
        ask({**usage_map(usage()), "data": {"schema": "9"}})


TEAM = {"name": "vision", "namespace": "ebb-team-vision", "usdPerMonth": 4000}


def of_vision(objects: tuple[Object, ...] = (), **options: Any) -> CostReport:
    data = {"schema": "1", "platform.json": json.dumps({**platform_json(), "teams": [TEAM]})}
    ebb = Ebb(kube=FakeKube({**platform_map(), "data": data}, *objects), platform=parse(data), namespace="ebb-team-vision")
    return asyncio.run(costs(ebb, **options))


def test_a_team_is_told_of_its_own_jobs_and_of_its_month(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)
    made = usage(begun=NOW - HOUR, until=NOW)
    made.days.clear()
    made.who = {uid(1)[:8]: Who(namespace="ebb-team-vision", job="job-1", user="ada"), uid(2)[:8]: Who(namespace=NS, job="job-2")}
    made.count(replace(SPOT, held=((uid(1)[:8], 0.5), (uid(2)[:8], 0.5))), NOW - HOUR, NOW)
    theirs = job(1, 0.5, began=NOW - HOUR)
    theirs["metadata"] |= {"namespace": "ebb-team-vision", "annotations": {ANNOTATION_OWNER: "ada"}}
    report = of_vision((theirs, usage_map(made)), by=By.USER)
    assert [(row.user, row.jobs) for row in report.rows] == [("ada", 1)], "the other job is of another namespace"
    assert (report.machines, report.idle, report.platform, report.difference_usd) == (None,) * 4
    assert report.team == TeamCost(
        name="vision", month="2026-11", usd=made.spent_in("2026-11")["ebb-team-vision"], usd_per_month=4000
    )
    assert "no proof" not in "".join(report.notes)
    assert ask().team is None
    assert of_vision().team == TeamCost(name="vision", month="2026-11", usd=None, usd_per_month=4000)
    with pytest.raises(BadRequest, match="--by day is of the whole platform, and not of team 'vision'"):
        of_vision(by=By.DAY)


# --- Estimates ------------------------------------------------------------------------------------------------------------------

ON_DEMAND = node_group("od-t4x4", "local-b", capacityType="on-demand", gpusPerNode=4, pricePerHourOnDemand=3.0, spotDiscount=0.0)


def would(**wanted: Any) -> list[tuple[str, int, float, float, bool]]:
    data = {"schema": "1", "platform.json": json.dumps(platform_json(ON_DEMAND))}
    ebb = Ebb(kube=FakeKube(), platform=parse(data), namespace=NS)
    found = asyncio.run(estimate(ebb, Wanted(**wanted)))
    return [(one.capacity, one.machines, round(one.usd, 4), round(one.usd_on_demand, 4), one.assumed) for one in found.offers]


def test_what_a_job_would_cost_by_each_way_to_buy_its_machines() -> None:
    assert would(gpus=4, gpu="T4", hours=5) == [
        ("spot", 4, 3.156, 10.52, True),
        ("on-demand", 1, 15.0, 15.0, False),
    ]
    assert would(gpus=4, hours=5, capacity="on-demand") == [("on-demand", 1, 15.0, 15.0, False)]


def test_a_way_that_does_not_fit_is_left_out_as_long_as_one_does() -> None:
    assert would(gpus=8, gpu="T4", hours=1) == [("on-demand", 2, 6.0, 6.0, False)]
    with pytest.raises(BadRequest, match="gpus 100 is more than one zone can hold"):
        would(gpus=100, gpu="T4", hours=1)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"gpus": 0, "hours": 1}, "gpus 0 is too few"),
        ({"gpus": 1, "hours": 0}, "hours 0 is not a length of time: use more than 0"),
        ({"gpus": 1, "hours": float("nan")}, "hours nan"),
        ({"gpus": 1, "hours": 1, "gpu": "H100"}, "gpu 'H100' is not on this platform: it has T4"),
        ({"gpus": 1, "hours": 1, "zone": "mars"}, "zone 'mars'"),
        ({"gpus": 1, "hours": 1, "capacity": "free"}, "capacity 'free'"),
    ],
)
def test_estimates_that_cannot_be(wanted: Object, said: str) -> None:
    with pytest.raises(BadRequest) as refused:
        would(**wanted)
    assert said in str(refused.value)
