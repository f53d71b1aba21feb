"""The start of a generation: its number and its checkpoint. Rank 0 looks, all get its answer.

start, fence = join(config, group)                     # claims the folder and the generation
found = find(config, start, fence, identity, group)    # the newest checkpoint that fits, read once, on every rank
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from ebb.compat import dataclass
from ebb.elastic.checkpoint import CheckpointFolder, EtcdFence, Fence, FenceUnreachable, FileFence, RefusedError, claim_folder
from ebb.elastic.checkpoint.cadence import Cadence
from ebb.elastic.checkpoint.manifest import newest_manifest, order_of
from ebb.elastic.checkpoint.owner import marker
from ebb.elastic.checkpoint.part_saver import PartSaver
from ebb.elastic.checkpoint.plain import PlainFile
from ebb.elastic.checkpoint.register import EtcdRegister
from ebb.elastic.checkpoint.saver import Saver
from ebb.elastic.checkpoint.seeds import read_file
from ebb.elastic.notices.relay import FOLDER_VARIABLE
from ebb.elastic.rendezvous import generation
from ebb.elastic.runtime.config import ConfigError, RunConfig
from ebb.elastic.runtime.pod import Pod
from ebb.elastic.runtime.process_group import Group
from ebb.elastic.speed.memory import keep_freed_memory


@dataclass(frozen=True, kw_only=True)
class Start:
    """The facts that all ranks of a generation agree on."""

    generation: int
    folder: str  # the id of the output folder


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The state to go on from. `content` is a whole, verified checkpoint, or empty."""

    step: int = 0
    epochs: int = 0  # complete ones, where a file of the original example knows no step
    generation: int = 0  # that wrote it, in this job; 0: none did
    own: bool = True  # of this job or another one of ours; not a file
    words: str = "from the start"
    content: bytes = b""
    parts: tuple[str, ...] = ()  # of the content: paths that each rank reads by itself
    checkpoint_step: int | None = None  # of the newest one, where the state is none's

    @property
    def in_memory(self) -> bool:
        """True for the state of a snapshot: of a sharded model this rank's part."""
        return self.checkpoint_step is not None


def join(config: RunConfig, group: Group) -> tuple[Start, Fence]:
    """Raises RefusedError when the folder is another job's, ConfigError when it cannot be written."""
    if group.rank != 0:
        start = Start(**group.hand_out_facts(None))
        return start, _agreed_fence(config, start.folder) or FileFence(config.output, start.generation)
    folder = _claim(config)
    fence = _agreed_fence(config, folder) or FileFence.claim(config.output)
    start = Start(generation=fence.generation, folder=folder)
    group.hand_out_facts(asdict(start))
    return start, fence


def find(config: RunConfig, start: Start, fence: Fence, identity: dict[str, Any], group: Group) -> Origin:
    """Raises RefusedError when what is there must not be gone on from."""
    if group.rank != 0:
        facts = json.loads(group.hand_out(None))
        return Origin(**facts, content=group.hand_out(None))
    origin = _find(config, start, fence, identity)
    facts = asdict(origin)
    content = facts.pop("content")
    group.hand_out(json.dumps(facts).encode())
    group.hand_out(content)
    return origin


def _claim(config: RunConfig) -> str:
    try:
        return claim_folder(config.output, config.owner)
    except OSError as error:
        raise ConfigError(f"--output {config.output} cannot be written: {error.strerror}; name a folder that can") from error


def _agreed_fence(config: RunConfig, folder: str) -> Fence | None:
    """The generation that the launchers have agreed on; None when they agree on none: then one is claimed by a file."""
    agreed = generation.read(os.environ)
    if agreed is None:
        return None
    if agreed.etcd is None:
        return FileFence(config.output, agreed.number)
    register = EtcdRegister(generation.open_etcd(agreed.etcd, os.environ))
    return EtcdFence(register, generation=agreed.number, membership=agreed.key, folder=folder)


def _find(config: RunConfig, start: Start, fence: Fence, identity: dict[str, Any]) -> Origin:
    """The job's own newest checkpoint; without one, what it was told to go on from."""
    own = folder_of(config, start, identity)
    own.prepare(fence.generation)
    found = own.newest(_named(fence))
    if found is not None:
        if found.manifest.generation >= fence.generation:
            raise RefusedError(
                f"this is generation {fence.generation}, and {own.place} holds a checkpoint of generation "
                f"{found.manifest.generation}: etcd and the folder are not of the same job. Give this job its own --output folder"
            )
        words = f"resumed after step {found.manifest.step} of generation {found.manifest.generation}"
        return Origin(
            step=found.manifest.step, generation=found.manifest.generation, words=words, content=found.content, parts=found.parts
        )
    path = _find_origin(config)
    if path is None:
        return Origin()
    if path.is_dir():
        return _from_folder(path, identity)
    file = read_file(path, arch=str(identity["arch"]), identity=identity)
    words = (
        f"resumed from {path}, after {file.epochs} epochs" if file.step is None else f"resumed after step {file.step} from {path}"
    )
    return Origin(step=file.step or 0, epochs=0 if file.step else file.epochs, own=False, words=words, content=file.content)


def newest_checkpoint(config: RunConfig, fence: Fence) -> tuple[int, int] | None:
    """Generation and step, without a look at its data; None before the first. Makes the folder, as find does."""
    CheckpointFolder(config.output, keep=config.keep_checkpoints, identity={}).prepare(fence.generation)
    manifest, named = newest_manifest(config.output), _named(fence)
    orders = [manifest.order if manifest else None, order_of(named) if named else None]
    newest = max(filter(None, orders), default=None)
    return (newest.generation, newest.step) if newest else None


def _from_folder(path: Path, identity: dict[str, Any]) -> Origin:
    output = path.parent if path.name == "checkpoints" else path
    found = CheckpointFolder(output, keep=1, identity=identity, owner=None).newest()
    if found is None:
        raise RefusedError(
            f"--resume-from {path} holds no checkpoint; `python -m ebb.elastic.checkpoint inspect` shows what it holds"
        )
    words = f"resumed after step {found.manifest.step} of generation {found.manifest.generation} from {path}"
    return Origin(step=found.manifest.step, words=words, content=found.content, parts=found.parts)


def _find_origin(config: RunConfig) -> Path | None:
    """--resume-from; or a --checkpoint-file that is there and nobody's: the original example goes on from it too."""
    if config.resume_from:
        if not Path(config.resume_from).exists():
            raise RefusedError(f"--resume-from {config.resume_from}: there is no such folder or file")
        return Path(config.resume_from)
    path = Path(config.checkpoint_file)
    if config.checkpoint_file and path.exists() and not marker(path).exists():
        return path
    return None


def _named(fence: Fence) -> str | None:
    try:
        return fence.newest()
    except FenceUnreachable as error:
        print(f"the newest checkpoint is looked for in the folder alone: {error}", file=sys.stderr, flush=True)
        return None


def folder_of(config: RunConfig, start: Start, identity: dict[str, Any]) -> CheckpointFolder:
    return CheckpointFolder(config.output, keep=config.keep_checkpoints, identity=identity, owner=start.folder)


def open_saver(
    config: RunConfig,
    start: Start,
    fence: Fence,
    identity: dict[str, Any],
    optimizer: torch.optim.Optimizer,
    *,
    pod: Pod | None = None,
) -> Saver:
    """After find: until then --checkpoint-file may be what the training goes on from.

    Raises OwnedFolderError when another job writes that file.
    """
    cadence = Cadence(
        shortest_seconds=config.checkpoint_min_seconds,
        longest_seconds=config.checkpoint_seconds,
        overhead=config.checkpoint_overhead,
    )
    facts: dict[str, Any] = {
        "cadence": cadence,
        "writer": config.place.rank,
        "optimizer": optimizer,
        "plain": _plain(config),
    }
    folder = folder_of(config, start, identity)
    return Saver(folder, fence, **facts) if pod is None else PartSaver(folder, fence, pod=pod, **facts)


def move_saver(saver: Saver, config: RunConfig, start: Start, fence: Fence, identity: dict[str, Any]) -> None:
    """Into the next generation of the same process. Raises OwnedFolderError, as open_saver."""
    saver.move(folder_of(config, start, identity), fence, writer=config.place.rank, plain=_plain(config))


def _plain(config: RunConfig) -> PlainFile | None:
    """--checkpoint-file, of rank 0."""
    return (
        PlainFile.claim(Path(config.checkpoint_file), config.owner) if config.checkpoint_file and config.place.rank == 0 else None
    )


def choose_device(config: RunConfig) -> torch.device:
    """The one of this process from now on. Raises ConfigError where a GPU was asked for or given, and torch sees none."""
    if config.device != "cpu" and torch.cuda.is_available():
        device = torch.device("cuda", config.place.local_rank)
        torch.cuda.set_device(device)
        return device
    if config.device == "cuda":
        raise ConfigError("--device is 'cuda', but torch sees no GPU here; use --device cpu, or run where there is one")
    if config.device == "auto" and (given := given_gpu(os.environ)):
        built = f"is built for CUDA {torch.version.cuda}" if torch.version.cuda else "is built without CUDA"
        raise ConfigError(
            f"--device is 'auto', and there is a GPU here ({given}), but torch {torch.__version__}, which {built}, sees none: "
            f"it is paid for, so nothing is trained on the CPU. Is NVIDIA's driver where LD_LIBRARY_PATH "
            f"({os.environ.get('LD_LIBRARY_PATH', '')!r}) says, and new enough? --device cpu trains without it"
        )
    keep_freed_memory(os.environ)
    return torch.device("cpu")


def decide_recovery(config: RunConfig, environment: Mapping[str, str]) -> RunConfig:
    """With memory or restart in the place of auto, the same on all ranks. Raises ConfigError where memory cannot be."""
    if config.recovery == "memory" and config.place.world_size > 1 and not config.place.launched:
        raise ConfigError(
            "--recovery is 'memory', but nothing that could give this process its next place has started it: start the program "
            "with `python -m ebb.elastic.launch`, or set --recovery restart"
        )
    if config.recovery != "auto":
        return config
    ours = config.place.launched and FOLDER_VARIABLE in environment  # torchrun gives nobody a place
    return replace(config, recovery="memory" if ours else "restart")


def given_gpu(environment: Mapping[str, str], devices: Path = Path("/dev")) -> str:
    """The sign that this process was given a GPU, "" if there is none: a device file, or a device plugin's variable.

    An empty CUDA_VISIBLE_DEVICES hides GPUs on purpose. `all` and the like in NVIDIA_VISIBLE_DEVICES are an image's defaults and
    no plugin's. The local cluster's GPUs leave neither sign: they are numbers alone, and their jobs train on the CPU.
    """
    if environment.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1"):
        return ""
    found = sorted(str(one) for one in devices.glob("nvidia[0-9]*"))
    named = environment.get("NVIDIA_VISIBLE_DEVICES", "")
    return found[0] if found else f"NVIDIA_VISIBLE_DEVICES={named}" if named not in ("", "all", "none", "void") else ""
