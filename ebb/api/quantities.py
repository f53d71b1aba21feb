"""Kubernetes quantities as numbers: "500m" CPUs are 0.5, "1Gi" is 2**30 bytes. Pure; it writes none."""

import math
import re

FACTORS = {
    **{"": 1, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18},
    **{"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60},
}
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([numkMGTPE]?|[KMGTPE]i)")


def quantity(amount: str | float) -> float:
    """The number that a quantity means. Raises ValueError for what is none."""
    match = _QUANTITY.fullmatch(str(amount))
    number = float(match[1]) * FACTORS[match[2]] if match else math.inf
    if not math.isfinite(number):
        raise ValueError(f"{amount!r} is not a quantity: write it as 2, 500m or 1.5Gi")
    return number


def counted(amount: str | float | None) -> float:
    """The same, at least 0, and 0 for none: what is no quantity is for the API server to refuse, in its words."""
    try:
        return max(0.0, quantity("" if amount is None else amount))
    except ValueError:
        return 0.0
