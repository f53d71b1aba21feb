"""The network learns, sees nothing of what follows, and does the same bits every time."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

from trainer.text.decoder import BYTES, SIZES, Decoder, DecoderConfig, RopeScaling, bits, frequencies, losses, rotate

TINY = DecoderConfig(layers=2, heads=4, kv_heads=2, width=32, hidden=96, context=16)
POEM = b"one fish two fish red fish blue fish black fish blue fish old fish new fish "


def windows(count: int = 8, length: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    content = torch.tensor(list(POEM * 4), dtype=torch.uint8)
    starts = [number * 5 for number in range(count)]
    both = torch.stack([content[start : start + length + 1] for start in starts])
    return both[:, :-1], both[:, 1:]


def network(seed: int = 0, *, recompute: bool = False) -> Decoder:
    torch.manual_seed(seed)
    return Decoder(TINY, recompute=recompute)


def train(model: Decoder, steps: int) -> list[float]:
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
    assert bits(history[0]) == pytest.approx(8, abs=0.2)
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


def test_the_loss_is_the_mean_over_a_windows_tokens() -> None:
    scores = torch.randn(3, 16, BYTES, generator=torch.Generator().manual_seed(0))
    _, targets = windows(3)
    expected = [cross_entropy(scores[n], targets[n].long()).item() for n in range(3)]
    assert losses(scores, targets).tolist() == pytest.approx(expected, abs=1e-6)
    assert bits(math.log(256)) == pytest.approx(8)


def test_shorter_windows_are_taken_and_longer_ones_are_not() -> None:
    inputs, _ = windows(2, 5)
    assert network()(inputs).shape == (2, 5, BYTES)
    with pytest.raises(ValueError, match="a window of 17 tokens; this network takes 16 at most"):
        network()(torch.zeros(1, 17, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("size", "millions"),
    [("tiny", 0.12), ("10m", 9.54), ("100m", 100.89), ("200m", 203.20), ("1b", 973.67), ("7b", 6478.37)],
)
def test_sizes(size: str, millions: float) -> None:
    with torch.device("meta"):
        model = Decoder(SIZES[size])
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6, 2) == millions


def test_only_matrices_are_decayed_and_every_parameter_is_trained() -> None:
    model = network()
    decayed, kept = model.parameter_groups(0.1)
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)
    assert {parameter.dim() for parameter in kept["params"]} == {1}
    assert len(decayed["params"]) + len(kept["params"]) == len(list(model.parameters()))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "width", "words"),
    [
        pytest.param(3, 3, 32, "not an even multiple of the heads 3", id="width"),
        pytest.param(4, 4, 12, "not an even multiple of the heads 4", id="odd"),
        pytest.param(4, 3, 32, "heads 4 are not a multiple of the kv_heads 3", id="groups"),
        pytest.param(0, 1, 32, "must be at least 1", id="none"),
    ],
)
def test_shapes_that_cannot_be(heads: int, kv_heads: int, width: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DecoderConfig(layers=1, heads=heads, kv_heads=kv_heads, width=width, hidden=8, context=8)


def test_scores_are_those_of_the_published_formulas() -> None:
    """Written again with loops over heads and positions: Llama's forward pass by its papers."""
    model = network().eval()
    state = {name: each.detach() for name, each in model.state_dict().items()}
    inputs, _ = windows(1, 6)
    x = state["model.embed_tokens.weight"][inputs[0].long()]
    for layer in range(TINY.layers):
        own = {name.removeprefix(f"model.layers.{layer}."): each for name, each in state.items()}
        normed = plain_norm(x, own["input_layernorm.weight"])
        mixed = torch.zeros(6, 32)
        for head in range(4):
            rows, group = slice(head * 8, head * 8 + 8), slice(head // 2 * 8, head // 2 * 8 + 8)
            queries, keys, values = (
                normed @ own[f"self_attn.{name}_proj.weight"][part].T for name, part in (("q", rows), ("k", group), ("v", group))
            )
            queries, keys = turned(queries), turned(keys)
            for place in range(6):
                weights = (queries[place] @ keys[: place + 1].T / math.sqrt(8)).softmax(0)
                mixed[place, rows] = weights @ values[: place + 1]
        x = x + mixed @ own["self_attn.o_proj.weight"].T
        normed = plain_norm(x, own["post_attention_layernorm.weight"])
        gate = normed @ own["mlp.gate_proj.weight"].T
        x = x + (gate * gate.sigmoid() * (normed @ own["mlp.up_proj.weight"].T)) @ own["mlp.down_proj.weight"].T
    scores = plain_norm(x, state["model.norm.weight"]) @ state["model.embed_tokens.weight"].T
    assert torch.allclose(model(inputs)[0], scores, atol=1e-6)


def plain_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def turned(x: torch.Tensor) -> torch.Tensor:
    """(T, 8): the pair (d, d + 4) as a complex number, times e to the i times its angle."""
    pairs = torch.complex(x[:, :4], x[:, 4:])
    angles = torch.arange(len(x))[:, None] * 10_000.0 ** -(torch.arange(4) / 4)[None, :]
    found = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((found.real, found.imag), dim=1)


def test_positions_count_by_their_distance_alone() -> None:
    turns = torch.arange(12.0)[:, None] * torch.cat((frequencies(TINY), frequencies(TINY)))[None, :]
    table = turns.cos(), turns.sin()
    query, key = torch.randn(2, 8, generator=torch.Generator().manual_seed(0)).unbind()
    one, other = (rotate(each.expand(12, 8), table) for each in (query, key))
    products = one @ other.T
    assert torch.allclose(products[5, 2], products[11, 8], atol=1e-5)
    assert not torch.allclose(products[5, 2], products[5, 3], atol=1e-3)


def test_a_longer_context_slows_the_slow_rotations_alone() -> None:
    scaling = RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=64)
    shape = DecoderConfig(layers=1, heads=1, kv_heads=1, width=64, hidden=8, context=512, rope_scaling=scaling)
    plain, scaled = frequencies(replace(shape, rope_scaling=None)), frequencies(shape)
    turns = 64 * plain / (2 * math.pi)
    assert torch.equal(scaled[turns >= 4], plain[turns >= 4])
    assert torch.allclose(scaled[turns <= 1], plain[turns <= 1] / 8)
    between = (turns > 1) & (turns < 4)
    assert between.any()
    assert ((scaled < plain) & (scaled > plain / 8))[between].all()


def test_recomputed_activations_change_no_gradient() -> None:
    inputs, targets = windows()
    gradients = []
    for recompute in (False, True):
        model = network(recompute=recompute)
        losses(model(inputs), targets).mean().backward()  # type: ignore[no-untyped-call]
        gradients.append([each.grad for each in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))
