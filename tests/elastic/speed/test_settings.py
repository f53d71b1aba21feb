"""A prepared network: other numbers and another layout inside, the same names, shapes and answers outside."""

import copy
from typing import NamedTuple

import pytest
import torch
from torch.nn.functional import cross_entropy

from ebb.elastic.speed import Speed
from ebb.elastic.speed.settings import Scaler

CPU = torch.device("cpu")
IMAGES = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(), torch.nn.Linear(8, 5),
    )  # fmt: skip


def trained(speed: Speed, steps: int = 8) -> torch.nn.Module:
    model = speed.prepare(network(), CPU)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, **speed.optimizer_options(CPU))
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(model(speed.laid_out(IMAGES)), torch.arange(6) % 5).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model


@pytest.mark.parametrize(
    ("speed", "tolerance"),
    [
        pytest.param(Speed(channels_last=True), 1e-5, id="channels_last"),
        pytest.param(Speed(fused=True), 1e-6, id="fused"),
        pytest.param(Speed(precision="bf16"), 5e-2, id="bf16"),  # 8 significant bits
        pytest.param(Speed(precision="bf16", channels_last=True, fused=True), 5e-2, id="all"),
    ],
)
def test_it_learns_what_plain_torch_learns(speed: Speed, tolerance: float) -> None:
    plain, quick = trained(Speed()), trained(speed)
    assert plain.state_dict().keys() == quick.state_dict().keys()
    for name, tensor in quick.state_dict().items():
        assert tensor.dtype == plain.state_dict()[name].dtype
        assert torch.allclose(tensor, plain.state_dict()[name], atol=tolerance), name


def test_plain_is_plain_to_the_last_bit() -> None:
    model = network()
    assert Speed().prepare(model, CPU) is model
    assert torch.equal(model(IMAGES), network()(IMAGES))


def test_sixteen_bits_inside_and_thirty_two_outside() -> None:
    model = Speed(precision="bf16").prepare(network(), CPU)
    seen: list[torch.dtype] = []
    model.get_submodule("5").register_forward_hook(lambda _module, _inputs, output: seen.append(output.dtype))
    assert model(IMAGES).dtype == torch.float32
    assert seen == [torch.bfloat16]
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_a_copy_of_a_prepared_network_computes_with_its_own_weights() -> None:
    model = Speed(precision="bf16").prepare(network(), CPU)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert not twin(IMAGES).any()
    assert model(IMAGES).any()


class Two(NamedTuple):
    first: torch.Tensor
    second: list[torch.Tensor]


def test_any_form_of_answer_gets_thirty_two_bits() -> None:
    class Head(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> dict[str, object]:  # type: ignore[override]
            y = super().forward(x)
            return {"tuple": (y, Two(y, [y])), "count": 3, "whole": torch.ones(2, dtype=torch.int64)}

    answer = Speed(precision="bf16").prepare(Head(4, 2), CPU)(torch.ones(1, 4))
    plain, named = answer["tuple"]
    assert isinstance(named, Two)
    assert plain.dtype == named.first.dtype == named.second[0].dtype == torch.float32
    assert (answer["count"], answer["whole"].dtype) == (3, torch.int64)


def test_images_are_laid_out_as_the_network_wants_them() -> None:
    assert Speed(channels_last=True).laid_out(IMAGES).is_contiguous(memory_format=torch.channels_last)
    assert Speed().laid_out(IMAGES) is IMAGES
    windows = torch.zeros(4, 8)
    assert Speed(channels_last=True).laid_out(windows) is windows
    model = Speed(channels_last=True).prepare(network(), CPU)
    assert model.get_submodule("0").weight.is_contiguous(memory_format=torch.channels_last)  # type: ignore[operator]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_without_fp16_the_scaler_does_nothing(precision: str) -> None:
    scaler = Speed(precision=precision).scaler()
    assert not scaler.is_enabled()
    assert scaler.scale(torch.tensor(3.0)).item() == 3.0
    assert scaler.state_dict() == {}


def test_a_scaler_goes_on_where_none_was_needed() -> None:
    """bf16 on an A100, then fp16 on a T4; then its own state. It computes on the CPU here, which torch allows."""
    scaler = Scaler("cpu", init_scale=1024.0)
    scaler.load_state_dict({})
    assert scaler.get_scale() == 1024.0
    other = Scaler("cpu", init_scale=8.0)
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 1024.0


def test_autocast_for_what_is_outside_of_the_network() -> None:
    matrix = torch.ones(4, 4)
    with Speed(precision="bf16").autocast():
        assert (matrix @ matrix).dtype == torch.bfloat16
    with Speed().autocast():
        assert (matrix @ matrix).dtype == torch.float32


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_fp16_with_the_scaler_learns_the_same() -> None:
    cuda = torch.device("cuda")
    speed = Speed(device_type="cuda", precision="fp16", channels_last=True, fused=True)
    model, scaler = speed.prepare(network(), cuda), speed.scaler()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, **speed.optimizer_options(cuda))
    images, labels = speed.laid_out(IMAGES.to(cuda)), torch.arange(6, device=cuda) % 5
    for _ in range(8):
        optimizer.zero_grad()
        scaler.scale(cross_entropy(model(images), labels)).backward()  # type: ignore[no-untyped-call]
        scaler.step(optimizer)
        scaler.update()
    for name, tensor in trained(Speed()).state_dict().items():
        assert torch.allclose(model.state_dict()[name].cpu().float(), tensor.float(), atol=2e-2), name
