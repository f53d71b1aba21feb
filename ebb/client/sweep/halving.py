"""The rule by which a sweep's runs stop or pause early, as it is asked for. What it does is in ebb/api/halving.py.

rule = stop_worst(0.5, after=200)             # --stop-worst 0.5 --after 200
rule = asha(3, after=200, metric="loss")      # --asha 3 --after 200
"""

from collections.abc import Iterable

from ebb.api.halving import METRICS, Phase, SweepRun, promoted_now
from ebb.api.parts import ASHA, STOP_WORST, Halving
from ebb.api.spec import Job, SpecError
from ebb.client.errors import BadRequest
from ebb.kube import Object


def stop_worst(fraction: float, *, after: int, metric: str = "loss") -> Halving:
    """Raises BadRequest."""
    if not 0 < fraction < 1:
        raise BadRequest(f"stop-worst {fraction:g} is not a fraction: use more than 0 and less than 1, such as 0.5.")
    _check("stop-worst", metric, after)
    return Halving(algorithm=STOP_WORST, after=after, metric=metric, fraction=fraction)


def asha(factor: int, *, after: int, metric: str = "loss") -> Halving:
    """Raises BadRequest."""
    if factor < 2:
        raise BadRequest(f"asha {factor} lets every run go on: use 2 or more, such as 3, of which one goes on.")
    _check("asha", metric, after)
    return Halving(algorithm=ASHA, after=after, metric=metric, factor=factor)


def goes_on(jobs: Iterable[Object]) -> bool:
    """Return whether a run of a sweep under asha may still be promoted: by those that train, or will, or as it is."""
    runs: list[SweepRun] = []
    rules: list[tuple[Halving, int | None]] = []
    for value in jobs:
        try:
            job = Job.of(value)
        except SpecError:
            continue  # it never trains
        if job.spec.group and job.spec.group.halving:
            rules.append((job.spec.group.halving, job.spec.group.max_parallel))
        runs.append(SweepRun.of(job, rules[-1][0].metric if rules else "loss"))
    if not rules or rules[0][0].algorithm != ASHA:
        return False
    return any(run.phase in (Phase.BUSY, Phase.NEW) for run in runs) or bool(promoted_now(runs, *rules[0]))


def _check(option: str, metric: str, after: int) -> None:
    if metric not in METRICS:
        raise BadRequest(
            f"{option} compares runs while they train, by what a job's status has, and metric {metric!r} is not in it: use "
            f"{' or '.join(METRICS)}, or leave --{option} out."
        )
    if after < 1:
        raise BadRequest(f"after {after} is too early: runs are compared from step 1 on.")
