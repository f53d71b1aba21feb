"""A small real data set: the 1,797 handwritten digits that scikit-learn carries, written as an image folder.

    python -m trainer.digits DIR        ->  DIR/train/<0..9>/*.png (1,500) and DIR/val/<0..9>/*.png (297)

The split is fixed and keeps the share of each class. The folder appears under its name when it is complete; a second run sees
that and does nothing, a run that was killed is taken up again. The only module that needs scikit-learn and pillow.
"""

import argparse
import os
import shutil
import sys
from pathlib import Path

from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

_SIDE = 32  # pixels; the originals are 8x8 with values 0 to 16
_VALIDATION = 297
_TOTAL = 1797


def write(target: Path) -> bool:
    """Make the folder; False when it was there already. Safe to repeat and to interrupt at any point."""
    if complete(target):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".tmp-{target.name}-{os.getpid()}")
    for leftover in target.parent.glob(f".tmp-{target.name}-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    _write_images(temporary)
    if target.exists():  # not by us, or damaged: never removed for the user
        shutil.rmtree(temporary)
        raise SystemExit(f"{target} exists and is not the complete digits folder: remove it, or name another folder")
    try:
        temporary.rename(target)
    except OSError:
        shutil.rmtree(temporary)
        if not complete(target):
            raise
    return True


def complete(target: Path) -> bool:
    """True if all images are there; the rename makes that a matter of counting."""
    counts = [sum(1 for _ in (target / part).glob("*/*.png")) for part in ("train", "val")]
    return counts == [_TOTAL - _VALIDATION, _VALIDATION]


def _write_images(root: Path) -> None:
    digits = load_digits()
    numbers = range(len(digits.target))
    _, validation = train_test_split(numbers, test_size=_VALIDATION, stratify=digits.target, random_state=0)
    held_out = set(validation)
    for number in numbers:
        folder = root / ("val" if number in held_out else "train") / str(digits.target[number])
        folder.mkdir(parents=True, exist_ok=True)
        grey = (digits.images[number] * (255 / 16)).round().astype("uint8")
        Image.fromarray(grey).resize((_SIDE, _SIDE), Image.Resampling.BICUBIC).save(folder / f"{number:04}.png")
        if (number + 1) % 300 == 0:
            print(f"wrote {number + 1} of {_TOTAL} images", flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m trainer.digits", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where to write it")
    folder = parser.parse_args(arguments).folder
    fresh = write(folder)
    print(
        f"{folder}: {_TOTAL - _VALIDATION} training and {_VALIDATION} test images of 10 digits"
        + ("" if fresh else ", there already")
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
