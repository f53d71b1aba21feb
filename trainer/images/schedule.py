"""The learning rate: a pure function of the samples used so far, so that a restart needs no state and no world size.

    schedule = Schedule.of_epochs("cosine", peak=0.1, dataset_size=50_000, epochs=90, warmup_epochs=5)
    rate = schedule.rate(start=step * G, stop=(step + 1) * G)

    constant   the peak
    cosine     from the peak to zero at the last sample
    step       the peak times 0.1 for every 30 epochs, as in the original ImageNet example

Each begins with a line from zero to the peak over the warm-up. Batch size and steps are not in it: a step asks with the samples
that it covers, and gets the warm-up's rate at its last one (the first step must learn something) and the decay's at its first.
"""

import math
from dataclasses import dataclass
from typing import Self

KINDS = ("cosine", "step", "constant")
_STEP_EPOCHS, _STEP_FACTOR = 30, 0.1  # torch's ImageNet example


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Everything is counted in samples, over all epochs and ranks."""

    kind: str
    peak: float
    total_samples: int
    warmup_samples: int = 0
    samples_per_factor: int = 0  # of "step"
    factor: float = _STEP_FACTOR  # of "step"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"--schedule is {self.kind!r}; allowed: {', '.join(KINDS)}")
        if self.kind == "step" and self.samples_per_factor < 1:
            raise ValueError(f"samples_per_factor is {self.samples_per_factor!r}; the schedule 'step' needs at least 1")
        if not 0 <= self.warmup_samples <= self.total_samples:
            raise ValueError(
                f"the warm-up takes {self.warmup_samples} samples of {self.total_samples}: "
                "lower --warmup-epochs, or raise --epochs"
            )

    @classmethod
    def of_epochs(
        cls,
        kind: str,
        *,
        peak: float,
        dataset_size: int,
        epochs: int,
        warmup_epochs: float = 0.0,
        epochs_per_factor: float = _STEP_EPOCHS,
    ) -> Self:
        return cls(
            kind=kind,
            peak=peak,
            total_samples=dataset_size * epochs,
            warmup_samples=round(warmup_epochs * dataset_size),
            samples_per_factor=round(epochs_per_factor * dataset_size),
        )

    def rate(self, *, start: int, stop: int) -> float:
        """Of the step that uses the samples [start, stop) of the run."""
        warm = min(1.0, stop / self.warmup_samples) if self.warmup_samples else 1.0
        return self.peak * warm * self._decay(start)

    def _decay(self, start: int) -> float:
        if self.kind == "step":
            return float(self.factor ** (start // self.samples_per_factor))
        if self.kind == "cosine":
            length = max(1, self.total_samples - self.warmup_samples)
            done = min(1.0, max(0, start - self.warmup_samples) / length)
            return 0.5 * (1 + math.cos(math.pi * done))
        return 1.0
