"""A tiny image folder for tests: noise whose mean depends on the class."""

from pathlib import Path

import torch
from torchvision.io import write_png

# With batch norm, and a thirtieth of resnet18's parameters: tests look at what machines do, and share two cores.
ARCH = "shufflenet_v2_x0_5"


def make(root: Path, *, classes: int = 3, train: int = 9, val: int = 3, side: int = 32) -> Path:
    """`train` and `val` are the numbers of images per class."""
    generator = torch.Generator().manual_seed(0)
    for part, count in (("train", train), ("val", val)):
        for label in range(classes):
            folder = root / part / f"class{label}"
            folder.mkdir(parents=True)
            for number in range(count):
                noise = torch.randint(0, 60, (3, side, side), generator=generator, dtype=torch.uint8)
                write_png(noise + 60 * label, str(folder / f"{number}.png"))
    return root


def training(data: Path, *more: str) -> list[str]:
    """The reference trainer on 120 of them, with a line and a ledger entry for each step: 24 a step, 5 steps an epoch."""
    settings = {"data": str(data), "arch": ARCH, "image-size": "32", "global-batch": "24", "log-every": "1"}
    return ["-m", "trainer", *(word for name, value in settings.items() for word in (f"--{name}", value)), "--ledger", *more]
