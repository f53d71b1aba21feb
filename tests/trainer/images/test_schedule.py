"""The learning rate, by samples: the same whatever the steps are cut into."""

import math
from typing import Any

import pytest

from trainer.images.schedule import Schedule


def schedule(kind: str, **more: Any) -> Schedule:
    settings: dict[str, Any] = {"peak": 0.1, "dataset_size": 1000, "epochs": 90, "warmup_epochs": 5, **more}
    return Schedule.of_epochs(kind, **settings)


@pytest.mark.parametrize(
    ("kind", "start", "expected"),
    [
        pytest.param("cosine", 0, 0.1 * 100 / 5000, id="cosine-first-step"),
        pytest.param("cosine", 2400, 0.05, id="cosine-half-of-the-warm-up"),
        pytest.param("cosine", 4900, 0.1, id="cosine-end-of-the-warm-up"),
        pytest.param("cosine", 5000, 0.1, id="cosine-begins"),
        pytest.param("cosine", 47500, 0.05, id="cosine-half"),
        pytest.param("cosine", 90000, 0.0, id="cosine-end"),
        pytest.param("cosine", 99999, 0.0, id="cosine-after-the-end"),
        pytest.param("step", 2400, 0.05, id="step-warm-up"),
        pytest.param("step", 29900, 0.1, id="step-last-of-epoch-29"),
        pytest.param("step", 30000, 0.01, id="step-epoch-30"),
        pytest.param("step", 60000, 0.001, id="step-epoch-60"),
        pytest.param("constant", 2400, 0.05, id="constant-warm-up"),
        pytest.param("constant", 80000, 0.1, id="constant-late"),
    ],
)
def test_rates(kind: str, start: int, expected: float) -> None:
    assert schedule(kind).rate(start=start, stop=start + 100) == pytest.approx(expected)


def test_the_original_examples_rate_at_every_epoch() -> None:
    """adjust_learning_rate of torch's ImageNet example: lr x 0.1^(epoch // 30)."""
    ours = schedule("step", warmup_epochs=0)
    assert [ours.rate(start=epoch * 1000, stop=epoch * 1000 + 32) for epoch in range(90)] == pytest.approx(
        [0.1 * 0.1 ** (epoch // 30) for epoch in range(90)]
    )


def test_the_cosine_is_the_one_that_counts_steps() -> None:
    ours = Schedule(kind="cosine", peak=0.1, total_samples=110 * 64, warmup_samples=10 * 64)
    for step in range(110):
        by_steps = 0.1 * (step + 1) / 10 if step < 10 else 0.05 * (1 + math.cos(math.pi * (step - 10) / 100))
        assert ours.rate(start=step * 64, stop=step * 64 + 64) == pytest.approx(by_steps)


@pytest.mark.parametrize("kind", ["cosine", "step", "constant"])
def test_never_above_the_peak_and_never_below_zero(kind: str) -> None:
    for batch in (1, 7, 64, 5000, 90000):
        rates = [schedule(kind).rate(start=start, stop=start + batch) for start in range(0, 90000, max(batch, 97))]
        assert all(0 <= rate <= 0.1 for rate in rates)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"kind": "linear"}, "--schedule is 'linear'; allowed: cosine, step, constant"),
        ({"warmup_epochs": 91}, "lower --warmup-epochs"),
        ({"kind": "step", "epochs_per_factor": 0}, "needs at least 1"),
    ],
)
def test_what_cannot_be(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        schedule(**{"kind": "cosine", **more})
