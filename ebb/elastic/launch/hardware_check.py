"""A short check of this machine before it joins a job, and of its GPUs after a fault that looks like theirs.

    gpus = GpuTest.find(say=say)                         # None: the machine has no GPU
    gpus.begin()                                         # in a child process, which imports torch while the launcher does
    gpus.finish()                                        # "" if every GPU computes; a sentence for a person if one does not
    find_fault("10.1.2.3", os.environ, gpus=True)        # the same of the network and of shared memory: milliseconds

A fault is what makes this machine unfit and another one not: it leaves with EXIT_HARDWARE before anybody waits for it. What all
machines of a job share is not judged here: an etcd that is away is waited for (rendezvous/member.py), a full output folder gets
one line. Where the test itself cannot run (no torch, a driver that is too old for it, a GPU whose memory somebody else uses), the
machine joins with one line, as NVIDIA's resiliency extension does with answers that it does not understand (release 0.7).
EBB_HARDWARE_CHECK=off switches all of it off. Nothing is sent to other machines: a slow network between two is not found here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ebb.compat import Self
from ebb.elastic.contract import ENV_OUTPUT_DIR
from ebb.elastic.faults import Fault, known_fault

ENV_HARDWARE_CHECK = "EBB_HARDWARE_CHECK"
COMMAND = (sys.executable, "-m", "ebb.elastic.launch.hardware_check")
DEVICES = Path("/dev")
# Without a word from the child, once it has imported torch. CUDA looks at all GPUs before the first one computes, which takes
# seconds for each where nothing keeps the driver loaded; a false alarm costs a good machine, a late one a minute.
SILENT_SECONDS = 60.0
_IMPORT_SECONDS = 300.0  # for torch to be imported from a slow disk, which is no silence of the GPU's
_CONNECT_SECONDS = 2.0
_GIB = 2**30
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where NCCL and loader processes need room
_LEAST_SHARED_BYTES = 16 * 2**20  # NCCL's segments have 5.7 to 9.6 MiB each in people's reports (tests/elastic/test_faults.py)
_USUAL_SHARED_BYTES = 64 * 2**20  # a container's by default; less is what the job asked for
_LONGEST_ERROR = 74  # the controller passes on 300 characters of a launcher's last line
_MORE = f"; `nvidia-smi -q` and `dmesg | grep Xid` there say more, {ENV_HARDWARE_CHECK}=off skips the check"
# Of every machine with this image, or of somebody else's use of the GPU.
_NOT_THE_MACHINES = re.compile(
    r"no NVIDIA driver|driver .*(too old|insufficient)|no kernel image|not compiled with CUDA|forward compatibility"
    r"|busy or unavailable",
    re.IGNORECASE,
)
_FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}  # the memory's limit, or a person


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Raises ValueError for a word that is neither on nor off."""
    word = environment.get(ENV_HARDWARE_CHECK) or "on"
    if word not in ("on", "off"):
        raise ValueError(f"{ENV_HARDWARE_CHECK} is {word!r}; allowed: on, off")
    return word == "on"


class GpuTest:
    """Tests of this machine's GPUs, each in a process of its own: CUDA's errors stick to a process, and a broken driver hangs."""

    def __init__(
        self,
        *,
        command: Sequence[str],
        silent_seconds: float,
        say: Callable[[str], None],
        heard: Callable[[Mapping[str, Any]], None] = lambda _: None,
        advice: str = _MORE,
        by_hand: str = "python -m ebb.elastic.launch.hardware_check",
    ) -> None:
        """`heard` takes each line of the child, before it is judged; `advice` ends the sentence about a fault; `by_hand` shows a
        person why a test could not run."""
        self._command, self._silent_seconds, self._say = list(command), silent_seconds, say
        self._heard, self._advice, self._by_hand = heard, advice, by_hand
        self._child: subprocess.Popen[bytes] | None = None
        self._most = 0  # that any test has seen: one that falls off the bus is missing in the next

    @classmethod
    def find(cls, *, say: Callable[[str], None]) -> Self | None:
        """None without a GPU. The driver makes the device files, and a container has those of its own GPUs."""
        if not any(DEVICES.glob("nvidia[0-9]*")):
            return None
        return cls(command=COMMAND, silent_seconds=SILENT_SECONDS, say=say)

    def begin(self) -> None:
        """In a session of its own: a signal to the launcher's process group is the launcher's."""
        self._child = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def finish(self) -> str | None:
        """The fault of a GPU as a sentence; "" if there is none, None if that cannot be told. Ends the child in any case."""
        if self._child is None:
            self.begin()
        assert self._child is not None
        try:
            return self._judge(self._child)
        finally:
            self.stop()

    def kill(self) -> None:
        """End a test that another thread waits for, and that nobody wants an answer of any more."""
        self._say = lambda _: None
        if child := self._child:
            child.kill()

    def stop(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1.0)  # one that hangs in the driver does not even hear SIGKILL
        if child.stdout:
            child.stdout.close()

    def _judge(self, child: subprocess.Popen[bytes]) -> str | None:
        said: dict[str, Any] = {}
        tested = True
        for line in self._lines(child):
            said |= line
            self._heard(line)
            if "untested" in line:
                self._say(f"{_name(said)} could not be tested: {line['untested']}; going on without it")
                tested = False
            if "error" in line:
                if fault := self._fault_of(said):
                    return fault
                tested = False
            if "done" in line:
                return self._missing(line["done"]) or ("" if tested and line["done"] else None)
        if not tested:
            return None
        gpu = _name(said) if "model" in said else "the GPUs of this machine"
        if child.poll() is None and "ready" in said:
            return f"{gpu} did not answer a test for {self._silent_seconds:.0f} s{self._advice}"
        number = -(child.returncode or 0)
        if "ready" in said and number > 0 and number not in _FROM_OUTSIDE:
            return f"{gpu}: a test of it was killed by signal {number} ({signal.Signals(number).name}){self._advice}"
        self._say(f"this machine's GPUs could not be tested (`{self._by_hand}` shows why); going on")
        return None

    def _lines(self, child: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
        """The child's lines, as far as they can be understood, until it ends or is silent for too long."""
        assert child.stdout is not None
        rest, deadline = b"", time.monotonic() + _IMPORT_SECONDS
        while (left := deadline - time.monotonic()) > 0 and select.select([child.stdout], [], [], left)[0]:
            data = os.read(child.stdout.fileno(), 65536)
            if not data:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(self._silent_seconds)  # closing its context may hang as well
                return
            *lines, rest = (rest + data).split(b"\n")
            deadline = time.monotonic() + self._silent_seconds
            for line in lines:
                with contextlib.suppress(ValueError):
                    found = json.loads(line)
                    if isinstance(found, dict):
                        yield found

    def _fault_of(self, said: Mapping[str, Any]) -> str:
        error = " ".join(str(said["error"]).split())
        kind = known_fault(error)
        if kind is Fault.HARDWARE or not (kind is Fault.MEMORY or _NOT_THE_MACHINES.search(error)):
            return f"{_name(said)} failed a test: {error[:_LONGEST_ERROR]}{self._advice}"
        self._say(f"{_name(said)} could not be tested: {error[:_LONGEST_ERROR]}; going on without it")
        return ""

    def _missing(self, count: int) -> str:
        self._most = max(self._most, count)
        if count == self._most:
            return ""
        return f"{self._most - count} of this machine's {self._most} GPUs cannot be seen any more{self._advice}"


def _name(said: Mapping[str, Any]) -> str:
    if said.get("device") == "cpu":
        return "the CPU of this machine"
    model = f" ({said['model']})" if said.get("model") else ""
    return f"GPU {said['gpu']}{model} of this machine" if "gpu" in said else "CUDA on this machine"


def find_fault(address: str, environment: Mapping[str, str], *, gpus: bool, shared_memory: Path = _SHARED_MEMORY) -> str:
    """The fault of this machine's network or shared memory as a sentence; "" if there is none. `address`: the one that it gives
    to the other machines; `gpus`: it has some, so that NCCL is to be used."""
    return (
        _address_fault(address)
        or _interface_fault(environment, gpus=gpus, present=[name for _, name in socket.if_nameindex()])
        or _shared_memory_fault(shared_memory)
    )


def warn_of_little_space(environment: Mapping[str, str], say: Callable[[str], None]) -> None:
    """All machines of a job share its output folder: to leave for it would only lead to the next machine."""
    folder = environment.get(ENV_OUTPUT_DIR)
    with contextlib.suppress(OSError):  # one that does not exist yet
        free = shutil.disk_usage(folder).free if folder else _GIB
        if free < _GIB:
            say(f"{folder} has {free / 2**20:.0f} MiB left: checkpoints may find no room")


def _address_fault(address: str) -> str:
    """As the other machines will come: to a port on all interfaces, at that address."""
    try:
        family, *_, place = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0]
        with socket.create_server(("", 0), family=family) as server:
            port = server.getsockname()[1]
            with socket.create_connection((str(place[0]), port), timeout=_CONNECT_SECONDS):
                return ""
    except OSError as error:
        return (
            f"this machine does not reach itself at {address!r}, the address that it would give to the others: {error}; "
            f"it needs a network, or --local-addr with an address of its own"
        )


def _interface_fault(environment: Mapping[str, str], *, gpus: bool, present: Sequence[str]) -> str:
    """NCCL and gloo fail with an internal error there, which looks as if a peer were gone."""
    nccl, gloo = environment.get("NCCL_SOCKET_IFNAME", ""), environment.get("GLOO_SOCKET_IFNAME", "")
    missing = [name for name in filter(None, gloo.split(",")) if name not in present]
    if missing:
        return f"GLOO_SOCKET_IFNAME is {gloo!r}, and this machine has no {missing[0]}; it has {', '.join(present)}"
    if gpus and nccl and not any(_nccl_takes(nccl, name) for name in present):
        return f"NCCL_SOCKET_IFNAME is {nccl!r}, and no interface of this machine fits; it has {', '.join(present)}"
    return ""


def _nccl_takes(words: str, name: str) -> bool:
    """NCCL's rule: the beginnings of names; with ^ all but those, with = whole names."""
    names = words.lstrip("^=").split(",")
    exact = "=" in words[:2]
    fits = any(name == each if exact else name.startswith(each) for each in names if each)
    return fits != words.startswith("^")


def _shared_memory_fault(folder: Path) -> str:
    """Full of what others have left there: a job that asked for little has got what it asked for."""
    with contextlib.suppress(OSError):  # a system without it
        found = shutil.disk_usage(folder)
        if found.total >= _USUAL_SHARED_BYTES and found.free < _LEAST_SHARED_BYTES:
            return (
                f"{folder} of this machine has {found.free / 2**20:.0f} of {found.total / 2**20:.0f} MiB left, too little for "
                "loader processes and NCCL: delete what others have left there"
            )
    return ""


def main() -> None:
    """The child: one line for each GPU before it computes, so that the last one names the GPU that hung or crashed."""
    import torch  # noqa: PLC0415  # the launcher's side of this file does without

    tell(ready=True)
    try:
        if torch.version.cuda is None:
            return tell(done=0)
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever torch raises: the launcher judges its words
        if "No CUDA GPUs are available" in str(error) and "CUDA_VISIBLE_DEVICES" in os.environ:
            return tell(done=0)  # hidden by intent; else the driver has lost them
        tell(error=str(error) or type(error).__name__)
        return None
    for number in range(torch.cuda.device_count()):
        tell(gpu=number, model="")
        try:
            tell(model=torch.cuda.get_device_name(number))
            if fault := try_gpu(torch, number):
                tell(error=fault)
        except Exception as error:
            tell(error=str(error) or type(error).__name__)
    return tell(done=torch.cuda.device_count())


def try_gpu(torch: Any, number: int) -> str:
    """The fault in one GPU's results, "" if there is none. Raises torch's errors.

    Whole numbers from -2 to 2: the sums of 512 products stay within 2048, so that float32, TF32 and float16 are all exact.
    """
    device = torch.device("cuda", number)
    rows, columns = torch.arange(512).view(-1, 1), torch.arange(512)
    left, right = ((rows * 7 + columns * 3) % 5 - 2), ((rows * 5 + columns * 11) % 5 - 2)
    expected = (left.float() @ right.float()).long()
    for kind in (torch.float32, torch.float16):
        found = (left.to(device, kind) @ right.to(device, kind)).cpu().long()
        if not torch.equal(found, expected):
            return f"it computes wrongly: {int((found != expected).sum())} of {found.numel()} numbers of a {kind} product"
    sent = torch.arange(2**23, dtype=torch.int32)  # 32 MiB, there and back
    if not torch.equal(sent.to(device).cpu(), sent):
        return "a copy to it and back is not what was sent"
    free, _ = torch.cuda.mem_get_info(device)
    filled = torch.full((min(free // 4, _GIB),), 85, dtype=torch.uint8, device=device)
    if int(filled.sum(dtype=torch.int64)) != 85 * filled.numel():
        return "its memory does not hold what was written"
    return ""


def tell(**words: Any) -> None:
    print(json.dumps(words), flush=True)


if __name__ == "__main__":
    main()
