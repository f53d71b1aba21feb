"""The money of a rehearsal: an estimate before it starts, a cap while it runs.

    budget = Budget(usd=10.0, usd_per_hour=0.30, machine_usd_per_hour=0.16, now=time.monotonic)
    budget.estimate()              # of all steps as planned
    budget.start()
    budget.seconds_left()          # until it has to destroy, so that the cap also pays for that

Prices are those of the cost table (infra/account/costs.py): the idle stack from the first moment, as if all of it were there, and
machines for the job while there may be any. What is paid by use (traffic, data that is read) is not in it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# Minutes that each step takes at most where all goes well. `up`: a control plane of about ten, a manager machine of three, images
# of ten to twenty, data sets. `job`: a GPU machine boots and pulls an image of 4 GB. `reclaim`: Azure evicts within half an hour
# (https://learn.microsoft.com/azure/virtual-machines/spot-vms, "Simulate an eviction", read 2026-11-23), and the job needs
# another machine. Assumptions until an account has shown them.
MINUTES: Mapping[str, float] = {"up": 45, "second up": 10, "job": 20, "reclaim": 45, "refresh": 10, "destroy": 30}
WITH_MACHINES = ("job", "reclaim")
MACHINES = 2  # the reclaimed one and the one after it may overlap


@dataclass
class Budget:
    """Prices in USD per hour: of the idle stack, and of one machine for the job. `now`: seconds of a clock that only goes on."""

    usd: float
    usd_per_hour: float
    machine_usd_per_hour: float
    now: Callable[[], float]
    with_machines: bool = False

    def __post_init__(self) -> None:
        self._seen, self._spent = self.now(), 0.0

    def estimate(self, *, job: bool = True) -> float:
        """USD of all steps as planned; without the job's, if it cannot run."""
        steps = {step: minutes for step, minutes in MINUTES.items() if job or step not in WITH_MACHINES}
        machines = sum(steps.get(step, 0.0) for step in WITH_MACHINES) * MACHINES * self.machine_usd_per_hour
        return (sum(steps.values()) * self.usd_per_hour + machines) / 60

    def start(self) -> None:
        self._seen, self._spent = self.now(), 0.0

    def machines(self, there: bool) -> None:
        """From now on there may be machines for the job, or there are none."""
        self.spent()
        self.with_machines = there

    def spent(self) -> float:
        """USD since the start."""
        now = self.now()
        self._spent += (now - self._seen) / 3600 * self._rate
        self._seen = now
        return self._spent

    def seconds_left(self) -> float:
        """Until what is left of the cap is just enough to destroy."""
        for_destroy = MINUTES["destroy"] / 60 * self._rate
        return math.inf if self._rate == 0 else max(0.0, (self.usd - self.spent() - for_destroy) / self._rate * 3600)

    @property
    def _rate(self) -> float:
        return self.usd_per_hour + (MACHINES * self.machine_usd_per_hour if self.with_machines else 0.0)
