"""An image folder of JPEGs as photographs are: larger than the network's input, smooth, with some noise. Made with torchvision.

write(folder, train=256)        # folder/train/<class>/<n>.jpg, folder/val/...
"""

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
    counts = {"train": train, "val": val}
    places = [folder / part / f"class{one % CLASSES}" / f"{one:05}.jpg" for part, count in counts.items() for one in range(count)]
    for parent in {place.parent for place in places}:
        parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor() as pool:  # torch lets other threads work while it encodes
        for place, picture in zip(places, pool.map(_picture, range(len(places))), strict=True):
            place.write_bytes(picture)


def _picture(seed: int) -> bytes:
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand((1, 3, 12, 16), generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=(HEIGHT, WIDTH), mode="bicubic", align_corners=False)[0]
    noise = torch.rand((3, HEIGHT, WIDTH), generator=generator) * 0.08
    image = ((smooth + noise).clamp(0, 1) * 255).to(torch.uint8)
    found = encode_jpeg(image, quality=QUALITY)
    assert isinstance(found, torch.Tensor)
    return found.numpy().tobytes()
