"""The program on machines with RDMA: it loads the kernel's modules for it, and lets workers lock their memory.

    python -m ebb.rdma --modules ib_umad rdma_ucm       # in a privileged pod that sees the machine's processes

Such interfaces read and write memory past the kernel, which must stay where it is, so programs lock it. What container runtimes
hand on as the limit (RLIMIT_MEMLOCK) is 64 KiB to 8 MiB, and NCCL ends with "Cannot allocate memory". The usual way, capability
IPC_LOCK in each pod, is none here: Pod Security `baseline` refuses it, and Kubernetes gives it to root alone. So the runtime gets
another limit, which its containers inherit; how much memory a pod has, locked or not, is bounded by its own limit as ever.
It runs for ever: a runtime that is restarted has its old limit again.
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

PROCESSES = Path("/proc")
HOST = Path("/host")  # the machine's root, where its modules are
RUNTIME = "containerd"  # and containerd-shim, the parent of each container
PAUSE_SECONDS = 10.0  # a worker locks memory later than that: it imports torch first
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def descendants(processes: Path = PROCESSES) -> set[int]:
    """Process ids of the container runtime and of its containers."""
    names, children = {}, dict[int, list[int]]()
    for folder in processes.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            name, _, rest = (folder / "stat").read_text().partition(" (")[2].rpartition(") ")
        except OSError:  # it has ended
            continue
        names[int(folder.name)] = name
        children.setdefault(int(rest.split()[1]), []).append(int(folder.name))
    found, waiting = set[int](), [pid for pid, name in names.items() if name.startswith(RUNTIME)]
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, [])
    return found


def lift(processes: Iterable[int], wanted: tuple[int, int] = UNLIMITED) -> int:
    """Let processes lock as much memory; return how many could not before."""
    lifted = 0
    for pid in processes:
        try:
            if resource.prlimit(pid, resource.RLIMIT_MEMLOCK) != wanted:
                resource.prlimit(pid, resource.RLIMIT_MEMLOCK, wanted)
                lifted += 1
        except ProcessLookupError:  # it has ended
            continue
    return lifted


def main() -> int:
    """Return the exit code: 1 if the machine's kernel lacks a module."""
    parser = argparse.ArgumentParser(prog="python -m ebb.rdma", description="Prepares a machine for RDMA.")
    parser.add_argument("--modules", nargs="*", default=[], help="modules of the machine's kernel to load")
    asked = parser.parse_args()
    if asked.modules:
        loaded = subprocess.run(["chroot", str(HOST), "modprobe", "--all", *asked.modules], check=False)
        if loaded.returncode:  # modprobe has said which
            print(
                "the kernel of this machine has no drivers for RDMA: workers on it cannot use its fast network", file=sys.stderr
            )
            return 1
        print(f"loaded {', '.join(asked.modules)}", flush=True)
    while True:
        if lifted := lift(descendants()):
            print(f"{lifted} processes of {RUNTIME} and its containers may lock their memory now", flush=True)
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
