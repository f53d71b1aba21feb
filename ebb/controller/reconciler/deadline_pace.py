"""The time for which a job with a deadline may still wait for spot machines. Pure.

    known = pace(view)             # None: it has no deadline, or nobody knows how much is left to do
    known.presses_at               # unix seconds: from then on only machines that nobody takes back are soon enough

The rule is the safety net of Wu et al., Can't Be Late, NSDI 2024, section 3: spot machines while there is slack, then on-demand
ones. Their Uniform Progress, which buys on-demand machines earlier so that slack is left for later, saved less here on their
traces (benchmarks/spot), where a job that trains on with fewer machines uses what little there is.
"""

from dataclasses import dataclass

from ebb.api.clock import unix
from ebb.controller.reconciler.types import JobView

MOVE_SECONDS = 480.0  # the checkpoint, the boot of GPU machines, a large image and the start of the processes: 3 to 8 minutes
UNSURE = 0.05  # of what is left: the speed so far is not that of the rest
ROOMY = 3.0  # margins that a job needs to leave its on-demand machines, since it may have to come back to them


@dataclass(frozen=True, kw_only=True)
class Pace:
    """`left`: seconds of training that remain at the speed so far; `deadline`: unix seconds."""

    left: float
    deadline: float

    @property
    def margin(self) -> float:
        """Seconds for the way to other machines and back, and for what the estimate does not know."""
        return 2 * MOVE_SECONDS + UNSURE * self.left

    @property
    def presses_at(self) -> float:
        """For a job that makes no step until then."""
        return self.deadline - self.left - self.margin

    @property
    def roomy_until(self) -> float:
        """Until then a job may go back to spot machines."""
        return self.deadline - self.left - ROOMY * self.margin


def pace(view: JobView) -> Pace | None:
    """See the module's docstring. The speed is that of all steps so far, those with fewer workers too: rather too low."""
    deadline, progress = unix(view.job.spec.deadline), view.observed.progress or view.job.status.progress
    if deadline is None or progress is None or not (progress.total_steps and progress.step and progress.useful_seconds):
        return None
    left = max(0, progress.total_steps - progress.step) * progress.useful_seconds / progress.step
    return Pace(left=left, deadline=deadline)
