"""The runs of each sweep, as their statuses tell, and those that have to look again when one of them came further.

    sweeps = Sweeps()
    for key in sweeps.put(job): ...             # look at these: they stop or are promoted for it
    sweeps.siblings(job)                        # the others, as the planner sees them

Thousands of runs may be in one sweep, so only those whose lot changes are told; the rest look by themselves every half minute.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ebb.api.halving import Phase, Siblings, SweepRun, promoted_now, verdicts
from ebb.api.parts import ASHA, Group, Halving
from ebb.api.spec import Job
from ebb.controller.reconciler.sweep import rule_of
from ebb.kube.reflector import Key

NOBODY = Siblings()


@dataclass
class _Sweep:
    """One sweep. The rule is that of the run that was looked at last: all runs of one have the same."""

    rule: Halving
    at_once: int | None
    runs: dict[str, SweepRun] = field(default_factory=dict)
    promoted: tuple[str, ...] | None = None  # None: a run has changed since

    def named(self) -> tuple[str, ...]:
        """The paused runs that may go on now."""
        if self.rule.algorithm != ASHA:
            return ()
        if self.promoted is None:
            self.promoted = promoted_now(self.runs.values(), self.rule, self.at_once)
        return self.promoted


class Sweeps:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._sweeps: dict[tuple[str, str], _Sweep] = {}  # by namespace and name of the group
        self._groups: dict[Key, str] = {}  # job -> the name of its group

    def put(self, job: Job) -> list[Key]:
        """Take in a job's new version."""
        key, group = (job.namespace, job.name), job.spec.group
        if self._groups.get(key) not in (None, group.name if group else ""):
            self.drop(key)
        if group is None or (group.halving is None and not self._counts(job, group)):
            return self.drop(key)
        sweep = self._sweeps.get((job.namespace, group.name))
        if sweep is None:
            assert group.halving is not None
            sweep = self._sweeps[job.namespace, group.name] = _Sweep(group.halving, group.max_parallel)
        if group.halving is not None and (group.halving, group.max_parallel) != (sweep.rule, sweep.at_once):
            sweep.rule, sweep.at_once, sweep.promoted = group.halving, group.max_parallel, None
        self._groups[key] = group.name
        run = SweepRun.of(job, sweep.rule.metric)
        if sweep.runs.get(job.name) == run:
            return []
        sweep.runs[job.name], sweep.promoted = run, None
        return [found for found in self._due(job.namespace, sweep) if found != key]

    def drop(self, key: Key) -> list[Key]:
        """The job is gone, or in no sweep that compares its runs."""
        name = self._groups.pop(key, None)
        sweep = self._sweeps.get((key[0], name)) if name is not None else None
        if name is None or sweep is None:
            return []
        sweep.runs.pop(key[1], None)
        sweep.promoted = None
        if not sweep.runs:
            del self._sweeps[key[0], name]
            return []
        return list(self._due(key[0], sweep))

    def siblings(self, job: Job) -> Siblings:
        """The other runs of its sweep; nobody where it is not compared with others."""
        group = job.spec.group
        sweep = self._sweeps.get((job.namespace, group.name)) if group and rule_of(job) else None
        if sweep is None:
            return NOBODY
        return Siblings(runs=tuple(run for run in sweep.runs.values() if run.name != job.name), promoted=sweep.named())

    def _counts(self, job: Job, group: Group) -> bool:
        """A run that was taken out of the comparison is still one of those that came as far."""
        return job.status.sweep is not None and (job.namespace, group.name) in self._sweeps

    @staticmethod
    def _due(namespace: str, sweep: _Sweep) -> Iterator[Key]:
        if sweep.rule.algorithm == ASHA:
            found = sweep.named()
        else:
            found = tuple(stop.name for stop in verdicts(sweep.runs.values(), sweep.rule))
        for name in found:
            if sweep.runs[name].phase in (Phase.BUSY, Phase.PAUSED):
                yield namespace, name
