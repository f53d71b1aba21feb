"""torch.compile, with results that outlive the process and the machine.

    cache = CompileCache(output / "compiled", device)
    speed.prepare(network, device, cache)      # takes what earlier generations have compiled
    ...; cache.keep()                          # rank 0, once steps run: what was compiled anew, for the next generation

Compiling takes a minute or more, at the first step of a process; a job on spot machines starts many. Two caches are between:
torch's own folder on the machine's disk ($TORCHINDUCTOR_CACHE_DIR; a folder under /tmp where nothing is set), which a restart in
the same pod finds again, and one file for each thing compiled in the job's folder, which a new machine reads once. torch looks up
both by the contents of the program, its own version and the device: a foreign result is never used, only not found. Files are
read from the job's own folder alone, since they hold code.

A compiler is needed also for GPUs (Triton's launchers are C), and slim images have none: then it is said at once, in a sentence.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from ebb.elastic.runtime.config import ConfigError

_MOST_FILES = 8  # different world sizes compile different shapes; ResNet-50's is a few MB
_FOLDER = "TORCHINDUCTOR_CACHE_DIR"


class NoCompilerError(ConfigError):
    """torch.compile needs a program that is not here."""


class CompileCache:
    """Files of one kind of device in `folder`. A disk that cannot be written costs the next start time, nothing else."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        self._seen = 0  # compiled by this process when keep() looked last
        self.folder = folder / re.sub(r"[^A-Za-z0-9.+-]+", "-", f"torch-{torch.__version__}-{name}")

    def restore(self) -> int:
        """Give torch what earlier generations have compiled; how many files were of use."""
        return sum(map(_restored, self._files()))

    def keep(self) -> Path | None:
        """Write what this process has compiled, if it is anything that the cache did not have. It may be called at any time."""
        compiled = _missed()
        if compiled == self._seen or not hasattr(torch.compiler, "save_cache_artifacts"):  # since torch 2.7
            return None
        self._seen = compiled
        found = torch.compiler.save_cache_artifacts()
        if found is None:
            return None
        content, _ = found
        path = self.folder / f"{hashlib.sha256(content).hexdigest()[:16]}.bin"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _write_whole(path, content)
            for old in self._files()[_MOST_FILES:]:
                old.unlink(missing_ok=True)
        except OSError as error:
            print(f"{path} cannot be written: {error.strerror}; the next start compiles again", file=sys.stderr, flush=True)
            return None
        return path

    def _files(self) -> list[Path]:
        """The newest first."""
        if not self.folder.is_dir():
            return []
        dated = []
        for path in self.folder.glob("*.bin"):
            with contextlib.suppress(OSError):  # removed by another rank 0 meanwhile
                dated.append((path.stat().st_mtime, path))
        return [path for _, path in sorted(dated, reverse=True)]


def compile_in_place(model: torch.nn.Module, device: torch.device, cache: CompileCache | None = None) -> None:
    """The module's own call is compiled at its first use: names in its state_dict stay. DistributedDataParallel around it finds
    out by itself and cuts the graph where its buckets end.

    From the first time on it is compiled for any batch size above 1: with every machine that comes or goes the shares of a step
    are others, and to compile anew would stop all machines for a minute. What torch decides by the batch size still holds for a
    range of them alone, such as a convolution's kernel on CPUs (torch 2.13: below 16, and from there on). Raises NoCompilerError.
    """
    lacking = missing_compiler(device, os.environ)
    if lacking:
        raise NoCompilerError(f"--compile: {lacking}")
    os.environ.setdefault(_FOLDER, str(Path(tempfile.gettempdir()) / f"ebb-compiled-{os.getuid()}"))
    if cache is not None:
        cache.restore()
    model.compile()
    compiled = model._compiled_call_impl

    def call(*inputs: Any, **more: Any) -> Any:
        for each in tree_flatten([inputs, more])[0]:
            if isinstance(each, torch.Tensor) and each.dim() and each.shape[0] > 1:  # of 0 and 1 torch makes constants
                torch._dynamo.maybe_mark_dynamic(each, 0)
        return compiled(*inputs, **more)  # type: ignore[misc]  # just made

    model._compiled_call_impl = call


def missing_compiler(device: torch.device, environment: Mapping[str, str]) -> str:
    """Name what torch.compile would lack on this device, as a sentence with the fix; empty when nothing."""
    variable, programs = ("CC", ("gcc", "clang")) if device.type == "cuda" else ("CXX", ("g++",))
    wanted = (environment[variable],) if environment.get(variable) else programs
    if not any(shutil.which(program) for program in wanted):
        return (
            f"torch.compile needs {' or '.join(wanted)} for the {device.type}, and there is none here: install it (Debian: "
            f"apt-get install g++), set {variable}, or leave out --compile"
        )
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if device.type == "cuda" and not header.is_file():
        return f"torch.compile needs {header}, and it is not here: install Python's headers, or leave out --compile"
    return ""


def _restored(path: Path) -> bool:
    try:
        return torch.compiler.load_cache_artifacts(path.read_bytes()) is not None
    except Exception as error:  # cut off or of another version: torch raises many kinds, and all it costs is time
        print(
            f"{path} is of no use ({type(error).__name__}: {str(error)[:100]}); it is compiled again", file=sys.stderr, flush=True
        )
        return False


def _missed() -> int:
    """The number of graphs that this process has compiled and not found."""
    from torch._dynamo.utils import counters  # noqa: PLC0415  # a second of imports, which only compiling needs

    return int(counters["inductor"]["fxgraph_cache_miss"] + counters["aot_autograd"]["autograd_cache_miss"])


def _write_whole(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    temporary.write_bytes(content)
    temporary.rename(path)
