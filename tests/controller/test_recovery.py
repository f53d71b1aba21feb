"""What a loss costs is measured, also one by plan; what is no loss is not."""

import pytest

from ebb.api.clock import stamp
from ebb.api.status import LEFT, PLACED, PROGRAM_FAILED, RECLAIMED, HistoryEntry, Status
from ebb.controller.metrics import RECOVERY_SECONDS, REPLACEMENT_SECONDS, Metrics, Recovery
from ebb.controller.reconciler.types import Plan

KEY = ("jobs", "digits")


@pytest.mark.parametrize(("what", "measured"), [(RECLAIMED, 1), (LEFT, 1), (PROGRAM_FAILED, 0), (PLACED, 0)])
def test_what_is_measured_from_its_notice_to_the_replacement(what: str, measured: int) -> None:
    metrics = Metrics()
    recovery = Recovery(metrics)
    entry = HistoryEntry(at=stamp(100.0), what=what, worker=3, node="n0")
    recovery.noticed(KEY, Plan(status=Status(), happened=(entry,)), 100.0)
    recovery.replaced(KEY, 2, 101.0)
    recovery.replaced(KEY, 3, 104.0)
    recovery.replaced(KEY, 3, 105.0)
    assert metrics.observations(REPLACEMENT_SECONDS) == measured
    assert (f"{REPLACEMENT_SECONDS}_sum 4\n" in metrics.text()) == bool(measured)


def test_a_job_that_is_short_of_workers_is_measured_until_it_runs_again() -> None:
    metrics = Metrics()
    recovery = Recovery(metrics)
    well = Status().with_condition("Running", True, "Runs", "", 0.0)
    short = well.with_condition("Running", False, "Waits", "", 100.0).with_condition("Restarting", True, "Waits", "", 100.0)
    back = short.with_condition("Restarting", False, "Runs", "", 140.0).with_condition("Running", True, "Runs", "", 140.0)
    recovery.written(KEY, well, short, 100.0)
    recovery.written(KEY, short, back, 140.0)
    assert f"{RECOVERY_SECONDS}_sum 40\n" in metrics.text()
