"""A grid of images: each where it belongs, unchanged, with a green or a red word under it."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from ebb.elastic.report import Labelled, save_images, spread
from ebb.elastic.report.images import grid

CLASSES = ["ant", "bee", "a class whose name is much too long for the width of its image"]


def shown(number: int, *, label: int, said: int, side: int = 32) -> Labelled:
    """One colour for each number."""
    image = torch.full((3, side, side), 0, dtype=torch.uint8)
    image[number % 3] = 100 + 10 * number
    scores = torch.zeros(3)
    scores[said] = 5.0
    return Labelled(image, label, scores)


def colours(picture: Image.Image) -> set[tuple[int, int, int]]:
    return {colour for _, colour in picture.getcolors(2**20) or []}  # type: ignore[misc]


def test_every_image_is_in_its_place(tmp_path: Path) -> None:
    path = save_images(tmp_path / "images" / "epoch-001.png", [shown(n, label=0, said=0) for n in range(11)], classes=CLASSES)
    with Image.open(path) as opened:
        picture = opened.convert("RGB")
    assert picture.size == (8 * 134 + 6, 2 * 162 + 6)  # 32 pixels four times, two lines of text, gaps
    for number in range(11):
        left, top = 6 + number % 8 * 134, 6 + number // 8 * 162
        pixel = [0, 0, 0]
        pixel[number % 3] = 100 + 10 * number
        assert colours(picture.crop((left, top, left + 128, top + 128))) == {tuple(pixel)}
    assert [entry.name for entry in path.parent.iterdir()] == ["epoch-001.png"]


@pytest.mark.parametrize(("said", "right"), [(0, True), (1, False), (2, False)])
def test_right_is_green_and_wrong_is_red(said: int, right: bool) -> None:
    picture = grid([shown(0, label=0, said=said)], CLASSES)
    words = colours(picture.crop((0, 6 + 128, picture.width, picture.height)))
    assert any(green > red + 50 for red, green, _ in words) == right
    assert any(red > green + 50 for red, green, _ in words) != right


def test_a_long_name_stays_below_its_own_image() -> None:
    two = grid([shown(0, label=2, said=2), shown(1, label=0, said=0)], CLASSES)
    between = two.crop((6 + 128, 0, 6 + 134, two.height))
    assert colours(between) == {(255, 255, 255)}


def test_large_images_become_smaller_and_oblong_ones_stay_oblong() -> None:
    wide = Labelled(torch.zeros(3, 300, 600, dtype=torch.uint8), 0, torch.zeros(3))
    assert grid([wide], CLASSES).size == (256 + 12, 128 + 2 * 14 + 12)


def test_scores_that_are_no_numbers_are_shown_too() -> None:
    diverged = Labelled(torch.zeros(3, 32, 32, dtype=torch.uint8), 0, torch.full((3,), float("nan")))
    assert grid([diverged], CLASSES).width


def test_a_spread_sees_every_class() -> None:
    assert spread(1000, 4) == [125, 375, 625, 875]
    assert spread(3, 16) == [0, 1, 2]
    labels = [number // 50 for number in range(500)]  # as image folders have them
    assert {labels[number] for number in spread(500, 16)} == set(range(10))


def test_none_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give at least one"):
        save_images(tmp_path / "none.png", [], classes=CLASSES)
