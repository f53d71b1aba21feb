"""The settings of speed, and their effect on a network.

    speed = Speed(device_type="cuda", precision="bf16", channels_last=True, fused=True)
    network = speed.prepare(network, device)      # its own forward pass computes in 16 bits and gives 32
    scaler = speed.scaler()                       # does something for fp16 alone
    scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()

prepare() changes the network in place: the names in its state_dict stay, so a checkpoint does not depend on any of this. It
chooses nothing (choice.py does) and reads no environment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import field
from types import MethodType
from typing import Any

import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from ebb.compat import dataclass
from ebb.elastic.runtime.config import ConfigError
from ebb.elastic.speed import compilation
from ebb.elastic.torch_compat import GradScaler

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
COMPRESSIONS = ("none", "bf16")
# torch's own. Measured by its authors for networks of 10 Gb/s and more (arXiv 2006.15704, section 5.2: 10 to 25 MB are best)
BUCKET_MB = 25.0
_SIXTEEN_BITS = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class Speed:
    """One process's settings."""

    device_type: str = "cpu"
    precision: str = "fp32"  # of the forward and backward pass; weights and optimizer have 32 bits always
    channels_last: bool = False  # pixels lie channel by channel in memory: what tensor cores and oneDNN want of convolutions
    compiled: bool = False
    fused: bool = False  # the optimizer updates all tensors in one kernel, without waiting for the scaler's verdict
    bucket_mb: float = BUCKET_MB  # gradients that travel together
    static_graph: bool = False  # see wrap() for when it is left out
    compression: str = "none"  # bf16: half the bytes between machines, and gradients rounded to 8 bits
    why: str = field(default="as asked for", compare=False)

    def __post_init__(self) -> None:
        check_choice("--precision", self.precision, PRECISIONS)
        check_choice("--compress-gradients", self.compression, COMPRESSIONS)
        if self.device_type == "cpu" and self.precision in ("tf32", "fp16"):
            raise ConfigError(f"--precision is {self.precision!r}; a CPU computes in fp32 or bf16: choose one of them, or auto")
        if self.bucket_mb <= 0:
            raise ConfigError(f"--bucket-mb is {self.bucket_mb!r}; it must be above 0, such as {BUCKET_MB:g}")

    def __str__(self) -> str:
        """One line: what, and why."""
        parts = [
            self.precision,
            "channels_last" if self.channels_last else "",
            "fused optimizer" if self.fused else "",
            "compiled" if self.compiled else "not compiled",
            "static graph" if self.static_graph else "",
            f"gradients as {self.compression}" if self.compression != "none" else "",
        ]
        return f"{', '.join(part for part in parts if part)} ({self.why})"

    def prepare(
        self, model: torch.nn.Module, device: torch.device, cache: compilation.CompileCache | None = None
    ) -> torch.nn.Module:
        """The same module, on the device and changed in place. Before the optimizer is made and DistributedDataParallel.

        Sets what torch has for the whole process too. Raises compilation.NoCompilerError when it cannot be compiled here.
        """
        assert device.type == self.device_type, (device, self.device_type)
        if device.type == "cuda" and self.precision != "fp32":
            torch.set_float32_matmul_precision("high")  # TF32 also in what autocast leaves in 32 bits
        model.to(device)
        if self.channels_last:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # its stub knows no keyword alone
        if self.precision in _SIXTEEN_BITS or self.compiled:  # torch 2.13 compiles no forward pass of its own, as Sequential's is
            _compute_under(self.autocast, model)
        if self.compiled:
            compilation.compile_in_place(model, device, cache)
        return model

    def wrap(
        self, model: torch.nn.Module, world_size: int, *, accumulates: bool, share_buffers: bool = False, **options: Any
    ) -> torch.nn.Module:
        """DistributedDataParallel for a prepared model whose weights are the same on all ranks; alone, the model itself.

        `accumulates`: a step may have several micro-batches in this generation. `share_buffers`: rank 0's before each pass.
        `options` are DistributedDataParallel's, and win over what is chosen here.

        - A static graph lets torch learn once what takes part in a backward pass. Where micro-batches accumulate, torch 2.13
          fails with no_sync() on the first one, or quietly shares no gradients from the second step on
          (https://github.com/pytorch/pytorch/pull/187732, open; tests/elastic/speed/test_gradients.py shows it).
        - bf16 compression is for networks that are slow for the network trained, such as ResNet-50's 102 MB over 10 Gb/s
          (163 ms a step). The sum itself is then made in 8 significant bits.
        """
        if world_size == 1:
            return model
        chosen = {
            "init_sync": False,
            "bucket_cap_mb": self.bucket_mb,
            "gradient_as_bucket_view": True,  # a copy less, and their memory once instead of twice
            "static_graph": self.static_graph and not accumulates,
            "forward_sync_buffers": share_buffers,
        }
        shared = DistributedDataParallel(model, **{**chosen, **options})
        if self.compression == "bf16":
            shared.register_comm_hook(None, bf16_compress_hook)
        return shared

    def autocast(self) -> contextlib.AbstractContextManager[None]:
        """For what is computed outside of a prepared network."""
        if self.precision not in _SIXTEEN_BITS:
            return contextlib.nullcontext()
        return torch.autocast(self.device_type, dtype=_SIXTEEN_BITS[self.precision])

    def scaler(self) -> GradScaler:
        """Of gradients that 16 bits would lose; one that does nothing unless the precision is fp16. Its state belongs into
        checkpoints. All ranks have the same: gradients that are not finite on one are so on all once they are shared."""
        return Scaler(self.device_type, enabled=self.precision == "fp16")

    def optimizer_options(self, device: torch.device) -> dict[str, Any]:
        """For the constructor of SGD, Adam, AdamW or Adagrad of torch."""
        return {"fused": True} if self.fused and device.type in ("cpu", "cuda") else {}

    def laid_out(self, images: torch.Tensor) -> torch.Tensor:
        """A batch as the network wants it in memory. Anything but (N, C, H, W) stays as it is."""
        if self.channels_last and images.dim() == 4:
            return images.contiguous(memory_format=torch.channels_last)
        return images

    def uncompiled(self) -> contextlib.AbstractContextManager[Any]:
        """In here a compiled network runs as written: for validation, whose shapes are others and not worth compiling for."""
        if not self.compiled or not hasattr(torch.compiler, "set_stance"):  # since torch 2.6; before, validation compiles too
            return contextlib.nullcontext()
        eager: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
        return eager


class Scaler(GradScaler):
    """torch's, which also goes on from a checkpoint of machines that needed none."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict:
            super().load_state_dict(state_dict)


def _compute_under(autocast: Callable[[], contextlib.AbstractContextManager[None]], model: torch.nn.Module) -> None:
    """Let the model's own forward pass run under autocast, so that a loop, a script or an evaluation needs no change; what comes
    out has 32 bits, so that a loss is exact. A bound method, which a deep copy of the model binds to the copy."""

    def forward(self: torch.nn.Module, *inputs: Any, **more: Any) -> Any:
        with autocast():
            return _wide(type(self).forward(self, *inputs, **more))

    model.forward = MethodType(forward, model)


def _wide(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return result.float() if result.dtype in _SIXTEEN_BITS.values() else result
    if isinstance(result, dict):
        return {name: _wide(value) for name, value in result.items()}
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*map(_wide, result))
    return type(result)(map(_wide, result)) if isinstance(result, (tuple, list)) else result


def check_choice(flag: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{flag} is {value!r}; allowed: {', '.join(allowed)}")
