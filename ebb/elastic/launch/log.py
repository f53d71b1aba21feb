"""The launcher's own lines among those of its workers."""

import sys
import time


def say(text: str) -> None:
    print(f"[launcher {time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)
