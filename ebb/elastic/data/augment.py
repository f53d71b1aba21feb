"""Random changes to an image before training. Images are uint8 (3, height, width); random numbers come from a generator that
the caller seeds for each sample, so that the result depends on no rank, process or order.

normalise() is the other half, for a whole batch on the device that computes: bytes travel to it, not floats.
"""

import math

import torch
from torch.nn.functional import interpolate, pad

AUGMENTATIONS = ("shift", "imagenet", "none")

# mean and deviation of ImageNet's channels (torchvision's reference training); any fixed numbers would do
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def augmented(image: torch.Tensor, side: int, augment: str, generator: torch.Generator) -> torch.Tensor:
    """The square image that the network sees, (3, side, side). `augment` is one of AUGMENTATIONS."""
    if augment == "imagenet":
        return random_area(image, side, generator)
    image = fit(image, side)
    return random_shift(image, generator) if augment == "shift" else image


def fit(image: torch.Tensor, side: int) -> torch.Tensor:
    """The whole image for a square one; else its centre."""
    height, width = image.shape[-2:]
    shorter = min(height, width)
    return resized(crop(image, (height - shorter) // 2, (width - shorter) // 2, shorter, shorter), side, side)


def random_shift(image: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Moved by up to an eighth of its side in both directions; the border is zero."""
    side = image.shape[-1]
    reach = side // 8
    down, right = torch.randint(0, 2 * reach + 1, (2,), generator=generator).tolist()
    return crop(pad(image, (reach, reach, reach, reach)), down, right, side, side)


def random_area(image: torch.Tensor, side: int, generator: torch.Generator) -> torch.Tensor:
    """The usual ImageNet training crop: 8 to 100 % of the area, ratio 3:4 to 4:3, and a flip half of the time."""
    height, width = image.shape[-2:]
    for _ in range(10):
        area, ratio, top, left = torch.rand(4, generator=generator).tolist()
        area = height * width * (0.08 + 0.92 * area)
        ratio = math.exp(math.log(3 / 4) + ratio * 2 * math.log(4 / 3))
        crop_width, crop_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            top, left = int(top * (height - crop_height + 1)), int(left * (width - crop_width + 1))
            image = resized(crop(image, top, left, crop_height, crop_width), side, side)
            break
    else:
        image = fit(image, side)
    return image.flip(-1) if torch.rand(1, generator=generator).item() < 0.5 else image


def crop(image: torch.Tensor, top: int, left: int, height: int, width: int) -> torch.Tensor:
    return image[:, top : top + height, left : left + width]


def resized(image: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Bilinear with antialiasing, on the bytes themselves: torchvision's first interface would go through floats. Decoded images
    lie pixel by pixel in memory, for which the kernel is at its best."""
    if image.shape[-2:] == (height, width):
        return image
    image = image[None].contiguous(memory_format=torch.channels_last)
    return interpolate(image, (height, width), mode="bilinear", antialias=True)[0]


def normalise(images: torch.Tensor, device: torch.device, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """uint8 images to floats, on the device that computes."""
    mean = torch.tensor(_MEAN, device=device).view(1, 3, 1, 1)
    deviation = torch.tensor(_DEVIATION, device=device).view(1, 3, 1, 1)
    return ((images.to(device, non_blocking=True).float() / 255 - mean) / deviation).to(dtype)
