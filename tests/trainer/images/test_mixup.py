"""Blends are the same bits at any number of ranks, any accumulation and after any restart."""

import itertools

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from ebb.elastic.data.order import Piece, share, split
from trainer.images.mixup import Mixed, Mixup
from trainer.images.train import losses, mixed_losses

MIXUP = Mixup(alpha=0.4, seed=3)


def pictures(step: Piece) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn((step.stop, 3, 2, 2), generator=generator), torch.arange(step.stop) % 5


def blended(step: Piece, own: Piece, mixup: Mixup = MIXUP) -> Mixed:
    images, labels = pictures(step)
    return mixup.mixed(images[slice(*own)], labels[slice(*own)], step=step, own=own)


def proportions(mixed: Mixed) -> torch.Tensor:
    assert mixed.proportions_N is not None
    return mixed.proportions_N


@pytest.mark.parametrize("size", [1, 2, 7, 12])
@pytest.mark.parametrize("first", [0, 1, 40, 41])
def test_the_bits_do_not_depend_on_ranks_or_accumulation(size: int, first: int) -> None:
    """The pieces are those of run/plan.py."""
    step = Piece(first, first + size)
    whole = blended(step, step)
    for world_size, largest in itertools.product((1, 2, 3, 5), (1, 2, 3, 99)):
        shares = [share(step, rank, world_size, MIXUP.together) for rank in range(world_size)]
        parts = [blended(step, piece) for each in shares for piece in split(each, largest, MIXUP.together)]
        for got, expected in zip(zip(*map(tensors, parts), strict=True), tensors(whole), strict=True):
            assert torch.equal(torch.cat(got), expected)


def tensors(mixed: Mixed) -> list[torch.Tensor]:
    return [mixed.images_NCHW, mixed.labels_N, mixed.other_labels_N, proportions(mixed)]


@pytest.mark.parametrize(
    ("mixup", "own", "there"),
    [
        pytest.param(MIXUP, Piece(12, 13), 2, id="one-that-comes-twice"),
        pytest.param(MIXUP, Piece(12, 12), 1, id="one-that-weighs-nothing"),
        pytest.param(Mixup(alpha=0, seed=3), Piece(8, 13), 5, id="none-wanted"),
    ],
)
def test_what_is_not_blended_stays_as_it_is(mixup: Mixup, own: Piece, there: int) -> None:
    images, labels = torch.rand(there, 3, 2, 2), torch.arange(there)
    mixed = mixup.mixed(images, labels, step=Piece(8, 13), own=own)
    assert mixed.images_NCHW is images
    scores = torch.randn(there, 5)
    assert torch.equal(mixed_losses(scores, mixed), losses(scores, labels))


def test_partners_share_a_proportion_and_a_blend_is_what_it_says() -> None:
    step = Piece(8, 13)
    images, labels = pictures(step)
    mixed = blended(step, step)
    found = proportions(mixed).tolist()
    assert found[0] == found[1] != found[2] == found[3]
    assert found[4] == 1
    assert torch.equal(mixed.images_NCHW[4], images[12])
    assert torch.allclose(mixed.images_NCHW[2], found[2] * images[10] + (1 - found[2]) * images[11], atol=1e-6)
    assert mixed.labels_N.tolist() == labels[8:13].tolist()
    assert mixed.other_labels_N.tolist() == labels[[9, 8, 11, 10, 12]].tolist()


def test_seed_and_place_decide() -> None:
    one = proportions(blended(Piece(0, 8), Piece(0, 8)))
    assert not torch.equal(one, proportions(blended(Piece(8, 16), Piece(8, 16))))
    assert not torch.equal(one, proportions(blended(Piece(0, 8), Piece(0, 8), Mixup(alpha=0.4, seed=4))))


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_proportions_have_the_spread_of_the_beta_distribution(alpha: float) -> None:
    step = Piece(0, 8000)
    found = proportions(Mixup(alpha=alpha, seed=0).mixed(torch.zeros(8000, 1), torch.zeros(8000), step=step, own=step))
    assert found.mean().item() == pytest.approx(0.5, abs=0.02)
    assert found.var().item() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.06)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_the_blended_target(smoothing: float) -> None:
    mixed = blended(Piece(0, 9), Piece(0, 9))
    scores = torch.randn(9, 5, generator=torch.Generator().manual_seed(1))
    share_N1 = proportions(mixed)[:, None]
    target = share_N1 * one_hot(mixed.labels_N, 5) + (1 - share_N1) * one_hot(mixed.other_labels_N, 5)
    expected = cross_entropy(scores, target, reduction="none", label_smoothing=smoothing)
    assert torch.allclose(mixed_losses(scores, mixed, label_smoothing=smoothing), expected, atol=1e-6)


def test_the_plain_loss_is_per_sample_and_in_32_bits() -> None:
    scores = torch.randn(9, 5, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(9) % 5
    assert torch.equal(losses(scores, labels), torch.stack([cross_entropy(scores[n], labels[n]) for n in range(9)]))
    assert losses(scores.bfloat16(), labels).dtype == torch.float32
