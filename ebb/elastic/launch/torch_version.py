"""The image's torch: its version, known without importing it, which takes seconds, and calls that work beside an older one too.

    find_problem(find_version())             # of ebb/torch_limits.py, which knows what an older one cannot do
    WorkerSpec(**accepted(WorkerSpec, role="default", virtual_local_rank=False))

What an older one lacks and this package asks for is here, in older_agent.py or in ebb/elastic/torch_compat.py, or is asked for in
a way that works there as well (`accepted`, `keep_signal_handlers`).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import signal
from collections.abc import Callable
from typing import Any


def find_version() -> str | None:
    """torch's version, "" where it does not tell; None: there is no torch."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "" if importlib.util.find_spec("torch") else None


def accepted(function: Callable[..., Any], **options: Any) -> dict[str, Any]:
    """The options that a function of this torch knows; newer ones have more."""
    known = inspect.signature(function).parameters
    return {name: value for name, value in options.items() if name in known}


def keep_signal_handlers(module: Any) -> None:
    """Let torch's start of workers leave our handlers in place. `module`: torch.distributed.elastic.multiprocessing.api, which
    puts its own one in for every signal where it does not know $TORCHELASTIC_SIGNALS_TO_HANDLE yet."""
    ours = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    usual = module._terminate_process_handler

    def handle(number: int, frame: Any) -> None:
        found = ours.get(signal.Signals(number), usual)
        if callable(found):
            found(number, frame)

    module._terminate_process_handler = handle
