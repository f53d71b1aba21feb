"""Where the time of a job went, over all its generations: seconds in steps that count, seconds lost, steps done again.

account = Account.resume(saved, resumed_step=120, last=last_line)
account.begin(now); account.step(seconds); account.saved()
"""

from dataclasses import asdict, dataclass
from typing import Any

from ebb.elastic.runtime.metrics import Progress


@dataclass(kw_only=True)
class Account:
    """`useful_seconds` goes back with the weights when steps are done again; what it loses is added to `lost_seconds`."""

    useful_seconds: float = 0.0
    lost_seconds: float = 0.0
    steps_redone: int = 0
    checkpoint_seconds: float = 0.0
    _last_time: float | None = None

    @classmethod
    def resume(cls, saved: dict[str, Any] | None, *, resumed_step: int, last: Progress | None) -> "Account":
        """`saved` is what the checkpoint holds, `last` the last line of metrics of any generation (steps after it are unseen)."""
        useful = float(saved["useful_seconds"]) if saved else 0.0
        if last is None:
            return cls(**saved) if saved else cls()
        return cls(
            useful_seconds=useful,
            lost_seconds=last.lost_seconds + max(0.0, last.useful_seconds - useful),
            steps_redone=last.steps_redone + max(0, last.step - resumed_step),
            checkpoint_seconds=last.checkpoint_seconds,
            _last_time=last.time,
        )

    def begin(self, now: float) -> None:
        """The first step of this generation starts: the time since the last step of the one before was lost."""
        if self._last_time is not None:
            self.lost_seconds += max(0.0, now - self._last_time)

    def saved(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {name: value for name, value in asdict(self).items() if not name.startswith("_")}
