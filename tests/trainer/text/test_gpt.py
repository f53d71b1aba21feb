"""The network learns, sees nothing of what follows, and does the same bits every time."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from trainer.text.gpt import BYTES, SIZES, Gpt, GptConfig, bits_per_byte, losses

TINY = GptConfig(layers=2, heads=2, width=32, context=16)
POEM = b"one fish two fish red fish blue fish black fish blue fish old fish new fish "


def windows(count: int = 8, length: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    content = torch.tensor(list(POEM * 4), dtype=torch.uint8)
    starts = [number * 5 for number in range(count)]
    both = torch.stack([content[start : start + length + 1] for start in starts])
    return both[:, :-1], both[:, 1:]


def network(seed: int = 0) -> Gpt:
    torch.manual_seed(seed)
    return Gpt(TINY)


def train(model: Gpt, steps: int) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameter_groups(0.1), lr=3e-3)
    inputs, targets = windows()
    history = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = losses(model(inputs), targets).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        history.append(loss.item())
    return history


def test_it_begins_knowing_nothing_and_learns_a_poem_by_heart() -> None:
    history = train(network(), 150)
    assert bits_per_byte(history[0]) == pytest.approx(8, abs=0.2)
    assert history[0] > history[20] > history[60] > history[149]
    # what follows the first bytes of a window cannot be known (which fish?); all else can
    assert history[149] < 0.25


def test_the_same_seed_gives_the_same_bits() -> None:
    one, two, other = (network(seed) for seed in (0, 0, 1))
    assert train(one, 5) == train(two, 5) != train(other, 5)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


@pytest.mark.parametrize("place", [0, 7, 15])
def test_nothing_that_follows_is_seen(place: int) -> None:
    model = network()
    inputs, _ = windows(2)
    changed = inputs.clone()
    changed[:, place] ^= 0x55
    before, after = model(inputs), model(changed)
    assert torch.equal(before[:, :place], after[:, :place])
    assert not torch.equal(before[:, place], after[:, place])


def test_windows_do_not_see_each_other() -> None:
    model = network().eval()
    inputs, targets = windows()
    together = losses(model(inputs), targets)
    alone = torch.cat([losses(model(inputs[n : n + 1]), targets[n : n + 1]) for n in range(len(inputs))])
    assert torch.allclose(together, alone, atol=1e-5)
    assert together.shape == (8,)


def test_the_loss_is_the_mean_over_a_windows_bytes() -> None:
    scores = torch.randn(3, 16, BYTES, generator=torch.Generator().manual_seed(0))
    _, targets = windows(3)
    expected = [cross_entropy(scores[n], targets[n].long()).item() for n in range(3)]
    assert losses(scores, targets).tolist() == pytest.approx(expected, abs=1e-6)
    assert bits_per_byte(math.log(256)) == pytest.approx(8)


def test_shorter_windows_are_taken_and_longer_ones_are_not() -> None:
    inputs, _ = windows(2, 5)
    assert network()(inputs).shape == (2, 5, BYTES)
    with pytest.raises(ValueError, match="a window of 17 bytes; this network takes 16 at most"):
        network()(torch.zeros(1, 17, dtype=torch.uint8))


@pytest.mark.parametrize(("size", "millions"), [("tiny", 0.12), ("small", 10.84), ("medium", 85.65)])
def test_sizes(size: str, millions: float) -> None:
    with torch.device("meta"):
        model = Gpt(SIZES[size])
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6, 2) == millions


def test_only_matrices_are_decayed_and_every_parameter_is_trained() -> None:
    model = network()
    decayed, kept = model.parameter_groups(0.1)
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)
    assert {parameter.dim() for parameter in kept["params"]} == {1}
    assert len(decayed["params"]) + len(kept["params"]) == len(list(model.parameters()))


@pytest.mark.parametrize(("heads", "width", "words"), [(3, 32, "not a multiple of the heads 3"), (0, 32, "must be at least 1")])
def test_shapes_that_cannot_be(heads: int, width: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        GptConfig(layers=1, heads=heads, width=width, context=8)
