"""NCCL's flight recorder on a hang: the last collectives of each rank, and which of them have not ended.

    place(os.environ)                          # the launcher: torch records, and writes by itself at NCCL's own limit
    keep(output, rank, say=print)              # a rank that hangs, before it gives up

One file a rank, as torch's analyser takes them: `torchfrtrace --prefix nccl_trace_rank_ OUTPUT` names the collective in which the
ranks differ. Nothing here needs another rank or the main thread. Without NCCL, or where nothing was recorded, no file.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, MutableMapping
from pathlib import Path

from ebb.elastic.contract import ENV_OUTPUT_DIR

PREFIX = "nccl_trace_rank_"
_NUM_COLLECTIVES = "2000"  # some kilobytes a hundred; a large model has dozens a step
_DUMP_SECONDS = 10.0  # a lock that a stuck thread holds must not keep this rank


def place(environment: MutableMapping[str, str]) -> None:
    """Change nothing that a user has set."""
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):  # the second one's name before torch 2.9
        environment.setdefault(name, _NUM_COLLECTIVES)
    if output := environment.get(ENV_OUTPUT_DIR):
        environment.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")
        for name in ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"):
            environment.setdefault(name, f"{output}/{PREFIX}")


def keep(output: Path, rank: int, *, say: Callable[[str], None], dump: Callable[[], bytes] | None = None) -> None:
    """Write what this process recorded. Never raises."""
    writer = threading.Thread(target=_write, args=(output / f"{PREFIX}{rank}", dump or _recorded, say), daemon=True)
    writer.start()
    writer.join(_DUMP_SECONDS)


def _write(path: Path, dump: Callable[[], bytes], say: Callable[[str], None]) -> None:
    try:
        content = dump()
        if not pickle.loads(content).get("entries"):  # noqa: S301  # made by torch in this process
            return
        temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}")
        temporary.write_bytes(content)
        temporary.replace(path)
    except Exception as error:  # it is a help, and the rank has to go on
        say(f"NCCL's flight recorder could not be kept: {error}")
        return
    say(f"the last collectives of this rank are in {path}; `torchfrtrace --prefix {PREFIX} {path.parent}` compares the ranks")


def _recorded() -> bytes:
    from torch._C import _distributed_c10d  # noqa: PLC0415  # the launcher imports this module before torch is needed

    dump = getattr(_distributed_c10d, "_dump_nccl_trace", None)  # of a torch with NCCL, 2.2 or newer
    return bytes(dump()) if dump is not None else pickle.dumps({})
