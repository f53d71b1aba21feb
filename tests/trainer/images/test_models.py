"""Networks of every family of torchvision can be made, and give one row of scores per image."""

import pytest
import torch

from trainer.images.models import UnknownModelError, build, names

# one of each family, and those that are built with options of their own
FAMILIES = "alexnet convnext_tiny efficientnet_b7 googlenet inception_v3 maxvit_t mnasnet0_5 mobilenet_v3_small resnet50 "
FAMILIES += "shufflenet_v2_x0_5 squeezenet1_1 swin_t vgg11 vit_b_16"


@pytest.mark.parametrize("name", FAMILIES.split())
def test_one_row_of_scores_per_image(name: str) -> None:
    """On the meta device: shapes without numbers."""
    side = 299 if name == "inception_v3" else 224
    with torch.device("meta"):
        network = build(name, 7)
        for mode in (True, False):
            assert network.train(mode)(torch.zeros(2, 3, side, side)).shape == (2, 7)


def test_one_whose_making_needs_numbers() -> None:
    assert build("regnet_y_400mf", 7)(torch.zeros(2, 3, 32, 32)).shape == (2, 7)


def test_the_list_is_of_classification_networks() -> None:
    assert {*FAMILIES.split(), "densenet121", "resnet18"} < set(names())
    assert not [name for name in names() if "rcnn" in name or "raft" in name or "deeplab" in name]


@pytest.mark.parametrize(
    ("name", "millions"),  # torchvision's own documentation, for 1000 classes
    [("resnet18", 11.69), ("resnet50", 25.56), ("efficientnet_b7", 66.35), ("vit_b_16", 86.57)],
)
def test_the_networks_are_the_published_ones(name: str, millions: float) -> None:
    with torch.device("meta"):
        network = build(name, 1000)
    assert round(sum(parameter.numel() for parameter in network.parameters()) / 1e6, 2) == millions


@pytest.mark.parametrize(("name", "side"), [("resnet50", 32), ("efficientnet_b7", 64), ("vit_b_16", 64), ("vit_b_32", 96)])
def test_other_sizes_of_images(name: str, side: int) -> None:
    with torch.device("meta"):
        assert build(name, 10, side)(torch.zeros(2, 3, side, side)).shape == (2, 10)


def test_the_weights_come_from_the_seed() -> None:
    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return torch.cat([parameter.detach().flatten() for parameter in build("squeezenet1_1", 4).parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


@pytest.mark.parametrize(
    ("name", "words"), [("resnet19", "did you mean resnet"), ("fasterrcnn_resnet50_fpn", "allowed: "), ("", "allowed: ")]
)
def test_an_unknown_name(name: str, words: str) -> None:
    with pytest.raises(UnknownModelError, match=words):
        build(name, 10)


@pytest.mark.parametrize("name", ["vit_b_16", "maxvit_t"])
def test_a_size_that_a_network_cannot_have(name: str) -> None:
    with pytest.raises(UnknownModelError, match=f"--arch {name} cannot be made for --image-size 33: "):
        build(name, 10, 33)
