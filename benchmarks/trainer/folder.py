"""An image folder of JPEGs as photographs are: larger than the network's input, smooth, with some noise. Made with torchvision.

write(folder, train=256)        # folder/train/<class>/<n>.jpg, folder/val/...
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torchvision.io import encode_jpeg

CLASSES = 4
# ImageNet's photographs are 500 x 375 on average (https://www.image-net.org/); decoding them is the work of a loader.
HEIGHT, WIDTH = 375, 500
QUALITY = 90


def write(folder: Path, *, train: int, val: int = CLASSES) -> None:
    """`train` and `val` are the numbers of all images, of which each class has its share."""

    def places() -> Iterator[Path]:
        for part, count in (("train", train), ("val", val)):
            for name in range(min(CLASSES, count)):
                (folder / part / f"class{name}").mkdir(parents=True, exist_ok=True)
            for number in range(count):
                yield folder / part / f"class{number % CLASSES}" / f"{number:05}.jpg"

    with ThreadPoolExecutor() as pool:  # torch lets other threads work while it encodes
        for _ in pool.map(lambda place: place[1].write_bytes(_picture(place[0])), enumerate(places())):
            pass


def _picture(seed: int) -> bytes:
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand((1, 3, 12, 16), generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=(HEIGHT, WIDTH), mode="bicubic", align_corners=False)[0]
    noise = torch.rand((3, HEIGHT, WIDTH), generator=generator) * 0.08
    image = ((smooth + noise).clamp(0, 1) * 255).to(torch.uint8)
    found = encode_jpeg(image, quality=QUALITY)
    assert isinstance(found, torch.Tensor)
    return found.numpy().tobytes()
