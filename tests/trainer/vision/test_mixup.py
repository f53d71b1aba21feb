"""Blends are the same bits at any number of ranks, any accumulation and after any restart."""

import itertools

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from trainer.data.order import Piece, share, split
from trainer.vision.loss import losses, mixed_losses
from trainer.vision.mixup import Mixed, Mixup

MIXUP = Mixup(alpha=0.4, seed=3)


def pictures(step: Piece) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn((step.stop, 3, 2, 2), generator=generator), torch.arange(step.stop) % 5


def blended(step: Piece, own: Piece, mixup: Mixup = MIXUP) -> Mixed:
    images, labels = pictures(step)
    wide = slice(*mixup.needed(step, own))
    return mixup.mixed(images[wide], labels[wide], step=step, own=own)


@pytest.mark.parametrize("size", [1, 2, 7, 12])
@pytest.mark.parametrize("first", [0, 1, 40, 41])
def test_the_bits_do_not_depend_on_ranks_or_accumulation(size: int, first: int) -> None:
    step = Piece(first, first + size)
    whole = blended(step, step)
    for world_size, largest in itertools.product((1, 2, 3, 5), (1, 2, 3, 99)):
        pieces = [piece for rank in range(world_size) for piece in split(share(step, rank, world_size), largest)]
        parts = [blended(step, piece) for piece in pieces]
        for got, expected in zip(zip(*parts, strict=True), whole, strict=True):
            assert torch.equal(torch.cat(got), expected)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        pytest.param(Piece(10, 14), Piece(10, 14), id="whole-pairs"),
        pytest.param(Piece(11, 14), Piece(10, 14), id="begins-inside"),
        pytest.param(Piece(11, 13), Piece(10, 14), id="both-ends-inside"),
        pytest.param(Piece(11, 17), Piece(10, 17), id="last-of-an-odd-step"),
        pytest.param(Piece(16, 17), Piece(16, 17), id="alone"),
        pytest.param(Piece(13, 13), Piece(13, 13), id="nothing"),
    ],
)
def test_what_is_loaded_besides(own: Piece, expected: Piece) -> None:
    assert MIXUP.needed(Piece(10, 17), own) == expected


def test_partners_share_a_proportion_and_a_blend_is_what_it_says() -> None:
    step = Piece(8, 13)
    images, labels = pictures(step)
    mixed = blended(step, step)
    proportions = mixed.proportions_N.tolist()
    assert proportions[0] == proportions[1] != proportions[2] == proportions[3]
    assert proportions[4] == 1
    assert torch.equal(mixed.images_NCHW[4], images[12])
    assert torch.allclose(mixed.images_NCHW[2], proportions[2] * images[10] + (1 - proportions[2]) * images[11], atol=1e-6)
    assert mixed.labels_N.tolist() == labels[8:13].tolist()
    assert mixed.other_labels_N.tolist() == labels[[9, 8, 11, 10, 12]].tolist()


def test_seed_and_place_decide() -> None:
    one = blended(Piece(0, 8), Piece(0, 8)).proportions_N
    assert not torch.equal(one, blended(Piece(8, 16), Piece(8, 16)).proportions_N)
    assert not torch.equal(one, blended(Piece(0, 8), Piece(0, 8), Mixup(alpha=0.4, seed=4)).proportions_N)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_proportions_have_the_spread_of_the_beta_distribution(alpha: float) -> None:
    step = Piece(0, 8000)
    proportions = Mixup(alpha=alpha, seed=0).mixed(torch.zeros(8000, 1), torch.zeros(8000), step=step, own=step).proportions_N
    assert proportions.mean().item() == pytest.approx(0.5, abs=0.02)
    assert proportions.var().item() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.06)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_the_blended_target(smoothing: float) -> None:
    mixed = blended(Piece(0, 9), Piece(0, 9))
    scores = torch.randn(9, 5, generator=torch.Generator().manual_seed(1))
    share_N1 = mixed.proportions_N[:, None]
    target = share_N1 * one_hot(mixed.labels_N, 5) + (1 - share_N1) * one_hot(mixed.other_labels_N, 5)
    expected = cross_entropy(scores, target, reduction="none", label_smoothing=smoothing)
    assert torch.allclose(mixed_losses(scores, mixed, label_smoothing=smoothing), expected, atol=1e-6)


def test_the_plain_loss_is_per_sample_and_in_32_bits() -> None:
    scores = torch.randn(9, 5, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(9) % 5
    assert torch.equal(losses(scores, labels), torch.stack([cross_entropy(scores[n], labels[n]) for n in range(9)]))
    assert losses(scores.bfloat16(), labels).dtype == torch.float32


def test_nothing_to_blend_is_said() -> None:
    with pytest.raises(ValueError, match="--mixup is 0"):
        Mixup(alpha=0, seed=0)
