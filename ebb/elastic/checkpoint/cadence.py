"""The distance between checkpoints, from the measured cost of the last ones.

    Cadence(shortest_seconds=2, longest_seconds=300, overhead=0.01).seconds_between(Cost(stall_seconds=0.2, write_seconds=1))

Two costs count. What the training loses may take `overhead` of the time: it stands still while its state is copied, and where it
computes on the processor, the writing thread takes its share of that. And the disk is busy while it is written: it is shared with
other jobs and with the data, so that may take ten times as much, a tenth of the time by default.
"""

from ebb.compat import dataclass

# A ResNet-50 (200 MB) on a file system of 100 MB/s writes for 2 s: with 1 % every 20 s at most, 10 MB/s on average.
_WRITING = 10


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one checkpoint."""

    stall_seconds: float = 0.0  # the training stood still
    taken_seconds: float = 0.0  # of the processor's time that the training would have used
    write_seconds: float = 0.0  # the disk was busy, beside the training


@dataclass(frozen=True, kw_only=True)
class Cadence:
    """The longest distance wins over the shares: what is lost without a notice must stay small."""

    shortest_seconds: float
    longest_seconds: float
    overhead: float

    def seconds_between(self, cost: Cost) -> float:
        wanted = max((cost.stall_seconds + cost.taken_seconds) / self.overhead, cost.write_seconds / (_WRITING * self.overhead))
        return min(self.longest_seconds, max(self.shortest_seconds, wanted))
