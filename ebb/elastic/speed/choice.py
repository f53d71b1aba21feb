"""The choice of speed settings for a device: choose(device, arch, options) gives a Speed whose text says both in one line.

    speed: bf16, channels_last, fused optimizer, not compiled (NVIDIA H200 has tensor cores for bf16; ...)

What the user sets wins; "auto" is decided here, from facts of the device alone (Chip): those of the least able one in the job, so
that all ranks decide the same. Nothing is measured: that would take minutes of each start.

- 16 bits where the GPU has matrix units for them: bf16 from compute capability 8.0 on (A100, L4, H100), which needs no scaler;
  fp16 with one on 7.0 and 7.5 (V100, T4). NVIDIA's ResNet-50 in mixed precision: 2.6 times TF32 on an A100, 3.3 times 32 bits on
  a V100 (DeepLearningExamples, resnet50v1.5, 21.03).
- channels_last for networks that are mostly convolutions: those units want it; on a GPU without them it changes little. oneDNN
  wants it too, in 32 bits: CPU seconds per image are 14 % fewer for ResNet-18, 10 % for ResNet-50, 20 % for EfficientNet-B0, 27 %
  for MobileNetV3, 15 % for DenseNet-121, 3 % for VGG-11 (AVX-512, torch 2.13, 2026-11-22).
- The fused optimizer on both: 1 to 2 % fewer on a CPU.
- Not compiled: it takes a minute or more of every machine's first start, which a job of hours on spot machines repays and a short
  one does not. `--compile` for the former; what was compiled is kept with the job.
- cuDNN does not try its algorithms on each new shape (torch.backends.cudnn.benchmark stays as the program has it: off). Each
  change of machines brings new shapes, and all would wait: 4 to 7 s for each size of ResNet-50's batch, where a step takes 0.05 s
  (bf16, H200, cuDNN of torch 2.11, 2026-11-28).
- A CPU computes in 32 bits: the same numbers everywhere, and only the newest have units for bf16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch

from ebb.compat import Self, dataclass
from ebb.elastic.runtime.config import ConfigError, option
from ebb.elastic.speed.settings import BUCKET_MB, COMPRESSIONS, PRECISIONS, Speed, check_choice

SWITCH = ("auto", "on", "off")
# torchvision's networks of attention, and trainer/text's: matrix products, whose layout is the same either way
_OF_ATTENTION = ("vit_", "swin_", "maxvit_", "decoder")


@dataclass(frozen=True, kw_only=True)
class SpeedOptions:
    """A user's settings; the defaults leave the choice to Ebb. A program's RunConfig takes the flags by inheriting this too."""

    precision: str = option("auto", "of forward and backward passes; auto: 16 bits where the GPU has units for them",
                            choices=("auto", *PRECISIONS))  # fmt: skip
    channels_last: str = option("auto", "the memory layout that is quickest for convolutions", choices=SWITCH)
    fused: str = option("auto", "update all weights in one kernel", choices=SWITCH)
    compile: bool = option(False, "torch.compile: a minute or more at a first start, then quicker steps; kept with the job")
    bucket_mb: float = option(BUCKET_MB, "megabytes of gradients that travel together", low=0.1)
    static_graph: bool = option(False, "say that all passes are alike, which may be quicker; left out while batches accumulate")
    compress_gradients: str = option("none", "bf16: half the bytes between machines, and rounded sums: for slow networks",
                                     choices=COMPRESSIONS)  # fmt: skip

    def __post_init__(self) -> None:
        check_choice("--precision", self.precision, ("auto", *PRECISIONS))
        for name in ("channels_last", "fused"):
            check_choice("--" + name.replace("_", "-"), getattr(self, name), SWITCH)


@dataclass(frozen=True, kw_only=True)
class Chip:
    """The facts that the choice depends on."""

    type: str = "cpu"
    name: str = "the CPU"
    capability: tuple[int, int] = (0, 0)

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> Self:
        """From asdict(), through JSON."""
        major, minor = facts["capability"]
        return cls(type=facts["type"], name=facts["name"], capability=(major, minor))

    @classmethod
    def of(cls, device: torch.device) -> Self:
        if device.type != "cuda":
            return cls(type=device.type)
        return cls(type="cuda", name=torch.cuda.get_device_name(device), capability=torch.cuda.get_device_capability(device))


def choose(
    device: torch.device,
    arch: str,
    options: SpeedOptions | None = None,
    *,
    from_all_ranks: Callable[[Any], list[Any]] = lambda facts: [facts],
) -> Speed:
    """The same on all ranks. `from_all_ranks` gives each the facts of all (Run.from_all_ranks); without it this one is alone.

    Raises ConfigError for what a device cannot do.
    """
    chips = [Chip.from_facts(facts) for facts in from_all_ranks(asdict(Chip.of(device)))]
    return choose_for(lowest(chips), arch, options or SpeedOptions())


def lowest(chips: Sequence[Chip]) -> Chip:
    """The one that all others can follow: in a job with several kinds of GPU all must compute alike, or fp16's scaled gradients
    would be added to others that are not. Raises ConfigError where some are no GPUs."""
    types = sorted({chip.type for chip in chips})
    if len(types) > 1:
        raise ConfigError(f"ranks compute on the {' and the '.join(types)}: take machines with GPUs alone, or --device cpu")
    return min(chips, key=lambda chip: chip.capability)


def choose_for(chip: Chip, arch: str, options: SpeedOptions) -> Speed:
    """The same, from facts alone."""
    precision, why = _precision(chip, options.precision)
    units = precision != "fp32"
    convolutions = not arch.startswith(_OF_ATTENTION)
    return Speed(
        device_type=chip.type,
        precision=precision,
        channels_last=_switch(options.channels_last, convolutions and (units or chip.type == "cpu")),
        compiled=options.compile,
        fused=_switch(options.fused, chip.type in ("cpu", "cuda")),
        bucket_mb=options.bucket_mb,
        static_graph=options.static_graph,
        compression=options.compress_gradients,
        why=why,
    )


def _precision(chip: Chip, asked: str) -> tuple[str, str]:
    if chip.type == "cuda" and asked == "bf16" and chip.capability < (8, 0):
        raise ConfigError(
            f"--precision is 'bf16', but {chip.name} has no units for it (compute capability {_dotted(chip)}; 8.0 has): "
            "take fp16, or auto"
        )
    if asked != "auto":
        return asked, f"--precision {asked} on {chip.name}"
    if chip.type != "cuda":
        return "fp32", f"{chip.name}: the same numbers everywhere"
    if chip.capability >= (8, 0):
        return "bf16", f"{chip.name}, compute capability {_dotted(chip)}: has units for bf16, and needs no scaler"
    if chip.capability >= (7, 0):
        return "fp16", f"{chip.name}, compute capability {_dotted(chip)}: has units for fp16, none for bf16"
    return "fp32", f"{chip.name}, compute capability {_dotted(chip)}: no units for 16 bits"


def _dotted(chip: Chip) -> str:
    return ".".join(map(str, chip.capability))


def _switch(asked: str, chosen: bool) -> bool:
    return chosen if asked == "auto" else asked == "on"
