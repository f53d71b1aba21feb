"""Right answers are those of sorting the scores by hand, and are counted without waiting for the device."""

import pytest
import torch

from trainer.images.train import places, right_answers


def scores(count: int, classes: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    """Whole numbers, so that many are equal."""
    generator = torch.Generator().manual_seed(count)
    rows = torch.randint(0, 6, (count, classes), generator=generator).float()
    return rows, torch.randint(0, classes, (count,), generator=generator)


def by_hand(rows: torch.Tensor, labels: torch.Tensor) -> list[int]:
    found = []
    for row, label in zip(rows.tolist(), labels.tolist(), strict=True):
        order = sorted(range(len(row)), key=lambda number: (-row[number], number))
        found.append(order.index(label))
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_places_are_those_of_a_sort(dtype: torch.dtype) -> None:
    rows, labels = scores(200)
    assert places(rows.to(dtype), labels).tolist() == by_hand(rows, labels)
    assert ((places(rows, labels) == 0) == (rows.argmax(1) == labels)).all()


def test_a_network_that_has_diverged_is_never_right() -> None:
    rows = torch.zeros(3, 9)
    rows[0] = torch.nan
    rows[1, 4] = torch.nan
    found = right_answers(rows, torch.zeros(3, dtype=torch.int64))
    assert (found["top1"].item(), found["top5"].item()) == (1, 2)  # one broken score comes before all others, and after none


def test_with_fewer_than_five_classes_all_are_among_the_five() -> None:
    assert right_answers(*scores(7, classes=3))["top5"].item() == 7


class Tracker(torch.overrides.TorchFunctionMode):
    """Fails where a number is fetched from the device."""

    def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        assert getattr(function, "__name__", "") not in ("item", "tolist", "__bool__", "__int__", "__float__", "cpu", "numpy"), (
            function
        )
        return function(*args, **(kwargs or {}))


def test_counting_waits_for_nothing() -> None:
    rows, labels = scores(8)
    with Tracker():
        found = right_answers(rows, labels)
        with pytest.raises(AssertionError):
            found["top1"].item()
