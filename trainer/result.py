"""What a run ends with: the test accuracy of its final weights, and their fingerprint."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch

from trainer.config import TrainConfig
from trainer.data import ImageFolder, ImageIndex, batches
from trainer.group import Group
from trainer.order import Piece, Sample, share, split
from trainer.start import index_path
from trainer.step import normalise

_EVALUATION_BATCH = 256


@torch.no_grad()
def evaluate(network: torch.nn.Module, config: TrainConfig, group: Group) -> tuple[int, int]:
    """Right answers and images of the val folder, over all ranks; each has a share of the images, none is padded."""
    group.hand_out_tensors(list(network.buffers()))
    index = ImageIndex.load_or_scan(config.data / "val", index_path(config, "val"))
    dataset = ImageFolder(index, image_size=config.image_size, augment="none", seed=0)
    part = share(Piece(0, len(index)), group.rank, group.world_size)
    plan = [[Sample(0, number) for number in range(*piece)] for piece in split(part, _EVALUATION_BATCH)]
    network.eval()
    correct = 0.0
    for batch in batches(dataset, plan, workers=config.workers):
        answers = network(normalise(batch.images, group.device)).argmax(1).cpu()
        correct += float((answers == batch.labels).sum().item())
    right, images = group.sum([correct, float(part.size)])
    return int(right), int(images)


def weights_sha256(network: torch.nn.Module) -> str:
    """Of the names and bytes of all parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def write_json(path: Path, content: dict[str, Any]) -> None:
    temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    temporary.rename(path)
