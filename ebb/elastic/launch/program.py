"""Runs a user's script as `python -u script.py ...` does, and writes its exception where torch's agent looks for it.

    python -u ebb/elastic/launch/program.py script.py --its-flags

Without it only scripts that use torch's @record tell why they failed. The script finds itself as __main__, with its own
arguments, its folder first on the path, and nothing of this file or package imported. Run by path, by agent.py alone.
"""

from __future__ import annotations

import atexit
import os
import sys
import types
from pathlib import Path


def main() -> None:
    sys.argv = sys.argv[1:]
    _leave_trackers_to_rank_zero()
    script = str(Path(sys.argv[0]).absolute())
    if not getattr(sys.flags, "safe_path", False):  # -P, since Python 3.11
        sys.path[0] = str(Path(script).resolve().parent)
    sys.excepthook = tell
    program = types.ModuleType("__main__")
    program.__dict__.update(__file__=script, __builtins__=__builtins__)
    sys.modules["__main__"] = program
    ended: list[int] = []
    atexit.register(_end, ended)  # first: what is registered first runs last
    try:
        exec(compile(Path(script).read_bytes(), script, "exec"), program.__dict__)  # noqa: S102  # it is what was asked for
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            ended.append((error.code or 0) & 0xFF)
        raise
    ended.append(0)


def _leave_trackers_to_rank_zero() -> None:
    """As trackers.py, which would bring the package with it."""
    given = os.environ.pop("EBB_TRACKER_RUN", "")
    if given and os.environ.get("RANK", "0") != "0" and os.environ.get("WANDB_RUN_ID") == given:
        del os.environ["WANDB_RUN_ID"]
        os.environ.pop("WANDB_RESUME", None)


def _end(ended: list[int]) -> None:
    """The interpreter is not torn down after a program that is done: now and then a thread of torch's or gloo's aborts the
    process there (std::terminate), and a finished worker would count as a failed one."""
    if ended:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended[0])


def tell(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """As Python does, without this file's own lines; and in torch's error file."""
    while trace and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)
    if issubclass(kind, Exception) and "TORCHELASTIC_ERROR_FILE" in os.environ:
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler  # noqa: PLC0415

        get_error_handler().record_exception(error)


if __name__ == "__main__":
    main()
