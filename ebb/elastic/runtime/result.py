"""What a run ends with: the fingerprint of its final weights, in result.json."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch


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
