"""How a generation starts: on which device, as which generation, from which checkpoint. Rank 0 looks, all get its answer."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from trainer.checkpoint import CheckpointFolder, Found, Manifest
from trainer.config import ConfigError, TrainConfig
from trainer.data import ImageIndex
from trainer.group import Group
from trainer.ledger import Ledger
from trainer.order import Stream


@dataclass(frozen=True)
class Start:
    generation: int
    found: Found | None


def agree_on_start(config: TrainConfig, group: Group) -> Start:
    """Rank 0 claims the generation, finds the newest checkpoint and makes the indexes; all get the same answer."""
    if group.rank != 0:
        facts = json.loads(group.hand_out(None))
        content = group.hand_out(None)
        manifest = Manifest(**facts["manifest"]) if facts["manifest"] else None
        return Start(facts["generation"], Found(manifest=manifest, content=content) if manifest else None)
    config.output.mkdir(parents=True, exist_ok=True)
    folder = checkpoints(config)
    generation = folder.claim_generation()
    for part in ("train", "val"):
        ImageIndex.load_or_scan(config.data / part, index_path(config, part))
    found = folder.newest()
    group.hand_out(json.dumps({"generation": generation, "manifest": asdict(found.manifest) if found else None}).encode())
    group.hand_out(found.content if found else b"")
    return Start(generation, found)


def checkpoints(config: TrainConfig) -> CheckpointFolder:
    """What must be the same for a checkpoint to be gone on with: the model, and what gives a step its samples."""
    identity = {
        "arch": config.arch,
        "image_size": config.image_size,
        "global_batch": config.global_batch,
        "seed": config.seed,
        "data": str(config.data),
    }
    return CheckpointFolder(config.output, keep=config.keep_checkpoints, identity=identity)


def open_ledger(config: TrainConfig, group: Group, start: Start, stream: Stream) -> Ledger:
    header = {
        "generation": start.generation,
        "resumed_step": start.found.manifest.step if start.found else 0,
        "resumed_generation": start.found.manifest.generation if start.found else 0,
        "rank": group.rank,
        "world_size": group.world_size,
        "dataset_size": stream.dataset_size,
        "global_batch": stream.global_batch,
        "epochs": stream.epochs,
    }
    return Ledger(config.output / "ledger", header)


def choose_device(config: TrainConfig) -> torch.device:
    if config.device == "cpu" or (config.device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigError("--device is 'cuda', but torch sees no GPU here; use --device cpu, or run where there is one")
    device = torch.device("cuda", config.place.local_rank)
    torch.cuda.set_device(device)
    return device


def index_path(config: TrainConfig, part: str) -> Path:
    return config.output / f"index-{part}.txt"
