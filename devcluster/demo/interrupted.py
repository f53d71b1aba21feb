"""`make prove-interruptions`: the demo is interrupted at ten points; what is left heals or is removed without a trace.

Points are lines that the demo prints, from the first to the last minute; the ways are Ctrl-C, kill -9 of all its processes and
kill -9 of the demo alone. After every second one `make down` has to leave nothing, which is looked for independently; after the
others the next demo goes on from there. The last demo runs to its end and has to pass. The last line is one JSON object.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from devcluster.settings import CHECKOUT, DEFAULT_BOX, EBB_HOME

POINT_LIMIT_SECONDS = 900.0  # a demo that takes longer to come to a point than the slowest cold start hangs
DEMO = [sys.executable, "-m", "devcluster.demo"]
CTRL_C, KILL_ALL, KILL_DEMO = "ctrl-c", "kill -9 of all", "kill -9 of the demo"


@dataclass(frozen=True)
class Interruption:
    """Interrupt when the demo prints this, so many seconds later, in this way."""

    text: str
    seconds: float
    way: str


POINTS = (
    Interruption("the Kubernetes of this machine", 0.5, KILL_ALL),
    Interruption("the Kubernetes of this machine", 3.0, CTRL_C),
    Interruption("the platform on it", 2.0, KILL_DEMO),
    Interruption("creat", 1.0, KILL_ALL),
    Interruption("submit a job", 0.3, KILL_ALL),
    Interruption("spot machines booted", 2.0, CTRL_C),
    Interruption("two workers train together", 0.5, KILL_DEMO),
    Interruption("with notice", 4.0, KILL_ALL),
    Interruption("no notice", 1.0, KILL_ALL),
    Interruption("scale the job", 5.0, CTRL_C),
)


def interrupt(point: Interruption) -> None:
    """Start a demo and end it at the point; returns when it is gone. Raises RuntimeError if it never came there."""
    demo = subprocess.Popen(
        DEMO, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    assert demo.stdout is not None
    deadline, tail = time.monotonic() + POINT_LIMIT_SECONDS, ""
    for line in demo.stdout:
        tail = (tail + line)[-3000:]
        if point.text in line or time.monotonic() > deadline:
            break
    else:
        raise RuntimeError(f"the demo ended with {demo.wait()} before it said {point.text!r}:\n{tail}")
    time.sleep(point.seconds)  # how far into the step; there is nothing to await
    if point.way == KILL_DEMO:
        demo.kill()
    else:
        os.killpg(demo.pid, signal.SIGINT if point.way == CTRL_C else signal.SIGKILL)
    demo.stdout.read()
    demo.wait()


def remains() -> list[str]:
    """Traces of the devcluster on this machine, by its own tools."""
    looks = (["ps", "-eo", "args"], ["ip", "netns"], ["ip", "-o", "link"], ["cat", "/proc/mounts"], ["nft", "list", "ruleset"])
    seen = [
        line for look in looks for line in subprocess.run(look, capture_output=True, text=True, check=True).stdout.splitlines()
    ]
    folder = EBB_HOME / "boxes" / DEFAULT_BOX
    found = [line for line in seen if f"{folder}/" in line or f"ebb.{DEFAULT_BOX}" in line or "KUBE-" in line]
    groups = [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/ebb/{DEFAULT_BOX}")]
    return found + groups + ([str(folder)] if folder.exists() else [])


def main() -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores Ctrl-C for what it runs in the background
    began, left = time.time(), []
    for number, point in enumerate(POINTS):
        print(
            f"[{time.time() - began:6.1f} s] {number + 1} of {len(POINTS)}: {point.way}, {point.seconds} s after {point.text!r}",
            flush=True,
        )
        interrupt(point)
        if number % 2:
            done = subprocess.run(["make", "--silent", "down"], cwd=CHECKOUT, capture_output=True, text=True, check=False)
            left += [done.stdout + done.stderr] if done.returncode else []
            left += remains()
            print(
                f"[{time.time() - began:6.1f} s]   down: {done.stdout.strip().splitlines()[-1:]}, left: {left or 'nothing'}",
                flush=True,
            )
    print(f"[{time.time() - began:6.1f} s] and now to the end", flush=True)
    last = subprocess.run(DEMO, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=False)
    demo = json.loads(last.stdout.splitlines()[-1])
    passed = last.returncode == 0 and not left
    figures = {"prove": "passed" if passed else "failed", "interruptions": len(POINTS), "left": left, "demo": demo["demo"]}
    print(json.dumps({**figures, "wall_seconds": round(time.time() - began, 1)}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
