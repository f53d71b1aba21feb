"""Actions on a job, one after the other: the words in which scenarios.py writes lives, model.py reads them, and
play.py performs them. Values only."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Train:
    """Enough workers run for so many seconds, however often they are lost meanwhile."""

    seconds: float


@dataclass(frozen=True)
class Fail:
    """The program of some workers fails at one moment, all with the same code."""

    code: int
    workers: int = 1
    reason: str = "Error"


@dataclass(frozen=True)
class Leave:
    """One worker's launcher leaves as on a reclaim, though its machine stays."""


@dataclass(frozen=True)
class Finish:
    """Workers exit with 0; so many of them never do."""

    stragglers: int = 0


@dataclass(frozen=True)
class Suspend:
    """Somebody suspends the job, and waits until its workers are gone."""


@dataclass(frozen=True)
class Resume:
    """Somebody resumes it."""


@dataclass(frozen=True)
class Scale:
    """Somebody asks for another number of workers, by `kubectl scale`."""

    to: int


@dataclass(frozen=True)
class Delete:
    """Somebody deletes the job."""


@dataclass(frozen=True)
class Rest:
    """Nothing for so many seconds of the clock, whatever the job does."""

    seconds: float


@dataclass(frozen=True)
class Overrun:
    """The program goes on past activeDeadlineSeconds."""


@dataclass(frozen=True)
class Spend:
    """The program goes on until the budget is spent."""


@dataclass(frozen=True)
class Outlive:
    """The program goes on past spec.deadline."""


@dataclass(frozen=True)
class Allow:
    """Somebody lifts the limit that held the job, so that it goes on."""


@dataclass(frozen=True)
class Stick:
    """Containers cannot start, ever: their image cannot be pulled."""


@dataclass(frozen=True)
class Hang:
    """The program runs and makes no step any more."""


Action = (
    Train | Fail | Leave | Finish | Suspend | Resume | Scale | Delete | Rest | Overrun | Spend | Outlive | Allow | Stick | Hang
)
