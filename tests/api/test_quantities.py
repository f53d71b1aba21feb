"""Kubernetes quantities."""

import pytest

from ebb.api.quantities import quantity

AMOUNTS = [
    ("2", 2), (2, 2), (0.5, 0.5), ("1.5", 1.5), ("1e3", 1000), ("500m", 0.5), ("250u", 0.00025), ("1k", 1000), ("1.5G", 1.5e9),
    ("512Mi", 2**29), ("1Gi", 2**30), ("2Ti", 2**41), ("1E", 1e18), ("0", 0),
]  # fmt: skip


@pytest.mark.parametrize(("text", "number"), AMOUNTS, ids=str)
def test_amounts(text: str | float, number: float) -> None:
    assert quantity(text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "much", "Gi", "1gi", "1 Gi", "inf", "nan", "1GiB", "1e400"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity: write it as 2, 500m"):
        quantity(text)
