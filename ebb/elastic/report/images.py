"""A few images with their labels and what the network says, as one PNG: to see what it learns, and that the data is right.

    numbers = spread(len(dataset), 16)                      # the same ones each epoch
    shown = [Labelled(image, label, scores) ...]
    path = save_images(output / "images" / "epoch-003.png", shown, classes=dataset.classes)

Any program can call it with images of its own. Under each image: what is predicted and how surely, green when right; red when
wrong, with the label below. Small images are shown larger, pixel by pixel.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image, ImageDraw, ImageFont

from ebb.compat import zip

_TILE = 128  # pixels; smaller images are enlarged by whole numbers up to about this
_LARGEST = 256  # larger ones are made smaller
_COLUMNS = 8
_LINE, _GAP = 14, 6
_PAPER, _INK, _RIGHT, _WRONG = "white", "black", "#1a7f37", "#cf222e"


class Labelled(NamedTuple):
    """One image and the network's answer."""

    image: torch.Tensor  # uint8 (3, height, width)
    label: int
    scores_K: torch.Tensor  # before softmax


def spread(size: int, count: int) -> list[int]:
    """`count` sample numbers at equal distances: folders hold class after class, and each should be seen."""
    count = min(size, count)
    return [(2 * place + 1) * size // (2 * count) for place in range(count)]


def save_images(path: Path, shown: Sequence[Labelled], *, classes: Sequence[str]) -> Path:
    """Write the grid, whole or not at all; an older one of this name is replaced. Raises OSError of the disk."""
    if not shown:
        raise ValueError("there is no image to save: give at least one")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    grid(shown, classes).save(temporary, format="PNG")
    temporary.rename(path)
    return path


def grid(shown: Sequence[Labelled], classes: Sequence[str]) -> Image.Image:
    pictures = [_picture(each.image) for each in shown]
    width, height = (max(picture.size[side] for picture in pictures) for side in (0, 1))
    cell_width, cell_height = width + _GAP, height + 2 * _LINE + _GAP
    columns = min(_COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    paper = Image.new("RGB", (columns * cell_width + _GAP, rows * cell_height + _GAP), _PAPER)
    pen = ImageDraw.Draw(paper)
    for number, (each, picture) in enumerate(zip(shown, pictures, strict=True)):
        left, top = _GAP + number % columns * cell_width, _GAP + number // columns * cell_height
        paper.paste(picture, (left, top))
        for line, (text, colour) in enumerate(_words(each, classes)):
            pen.text((left, top + height + 1 + line * _LINE), _cut(text, width), fill=colour, font=_font())
    return paper


def _picture(image: torch.Tensor) -> Image.Image:
    picture = Image.fromarray(image.detach().cpu().permute(1, 2, 0).contiguous().numpy())
    longest = max(picture.size)
    if longest > _LARGEST:
        picture.thumbnail((_LARGEST, _LARGEST))
        return picture
    times = max(1, round(_TILE / longest))
    return picture.resize((picture.width * times, picture.height * times), Image.Resampling.NEAREST)


def _words(each: Labelled, classes: Sequence[str]) -> list[tuple[str, str]]:
    chances_K = each.scores_K.detach().float().softmax(0)
    said = int(chances_K.argmax())
    sure = f"{100 * chances_K[said].item():.0f} %: " if torch.isfinite(chances_K[said]) else "?: "
    if said == each.label:
        return [(sure + classes[said], _RIGHT)]
    return [(sure + classes[said], _WRONG), (f"is {classes[each.label]}", _INK)]


def _cut(text: str, width: int) -> str:
    if _font().getlength(text) <= width:
        return text
    while text and _font().getlength(text + "...") > width:
        text = text[:-1]
    return text + "..."


def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(_LINE - 3)
