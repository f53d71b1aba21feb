"""Records that a cloud fills for the commands: costs, leftovers, findings of preflight, patterns of pinned versions."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

HOURS_PER_MONTH: Final = 730
OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "fail"
PYPI: Final = "pypi"
GITHUB: Final = "github"
ACCOUNT: Final = "account"


@dataclass(frozen=True, kw_only=True)
class Line:
    """One thing that is paid by time, in USD per hour."""

    what: str
    idle: float
    full: float
    note: str = ""


def always(what: str, usd_per_hour: float, note: str = "") -> Line:
    """Something that costs as much idle as at full scale."""
    return Line(what=what, idle=usd_per_hour, full=usd_per_hour, note=note)


@dataclass(frozen=True, kw_only=True)
class Use:
    """One thing that is paid by use."""

    what: str
    usd: float
    unit: str


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """All of it. `basis`: whose prices, of when, and what was assumed."""

    lines: tuple[Line, ...] = ()
    uses: tuple[Use, ...] = ()
    advice: tuple[str, ...] = ()
    basis: tuple[str, ...] = ()

    @property
    def usd_per_hour_idle(self) -> float:
        return sum(line.idle for line in self.lines)

    @property
    def usd_per_hour_full(self) -> float:
        return sum(line.full for line in self.lines)


@dataclass(frozen=True, kw_only=True)
class Offered:
    """Spot prices, in USD per hour by machine type and zone. `source`: who was asked; `notes`: what has no price, and why."""

    source: str
    region: str
    usd_per_hour: Mapping[str, Mapping[str, float]]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Left:
    """One thing. `remove`: a shell command; `kept`: why destroy leaves it on purpose; `usd_per_month`: None when not known."""

    kind: str
    name: str
    note: str = ""
    usd_per_month: float | None = 0.0
    remove: str = ""
    kept: str = ""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The things found, and the searches that were refused."""

    things: tuple[Left, ...]
    blind: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A result of a check. `fix`: a command, a key of the stack's file, or where to ask."""

    level: Literal["ok", "warn", "fail"]
    text: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class Check:
    """A question. `look` may raise CannotLook, after which no other check makes sense."""

    what: str
    look: Callable[[], Iterable[Finding]]


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """Pins of one form. `text` has the group `version`, and the group `name` or else `name` here. `index`: who knows of newer
    ones; `source`: the repository on GitHub, if the text has no group for it; `versions`: the form of its tags."""

    files: str
    text: str
    index: str
    name: str = ""
    source: str = ""
    versions: str = r"v?(\d+(?:\.\d+)+)"


def ok(text: str) -> Finding:
    return Finding(level=OK, text=text)


def warn(text: str, fix: str = "") -> Finding:
    return Finding(level=WARN, text=text, fix=fix)


def fail(text: str, fix: str = "") -> Finding:
    return Finding(level=FAIL, text=text, fix=fix)
