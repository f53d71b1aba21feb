"""A longer test of a machine before it begins work: `ebb submit --burn-in 60s`, or by hand where something seems wrong.

    python -m ebb.elastic.launch.burn_in --seconds 20        # this machine, now; 79: it is broken
    burn_in = BurnIn.of(os.environ, say=say)                 # the launcher's: it does nothing without $EBB_BURN_IN_SECONDS
    fault = burn_in.run()                                    # "" or a sentence about what is broken
    fault = burn_in.try_network("10.1.2.3")                  # the same
    burn_in.keep()                                           # its figures

GPU memory: all of it that is free is written with six patterns and read back. Matrix products in each precision that the GPU has:
every result is compared with the first one bit for bit, and products of whole numbers with what they are. Copies between host and
GPU, and between each two GPUs of the machine, are compared with what was sent. Bytes to the machine's own address come back as
they were. All GPUs work at the same time, as they will in the job; without a GPU the same is done with less on the CPU.

A wrong result, an error of CUDA's, a crash and a silence are faults, and the machine leaves as after the short check
(hardware_check.py). A GPU that is far slower than the others of its model is named and stays: how slow is too slow is for people
to say. Networks between machines are `ebb check network`'s: before the machines meet there is no peer to ask.

The figures stay in the job's output folder, in a file for each machine, which a launcher that is started again on the same
machine finds: it is not tested twice.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from ebb.compat import Self
from ebb.elastic.contract import (
    ENV_BURN_IN_SECONDS,
    ENV_NODE_NAME,
    ENV_OUTPUT_DIR,
    EXIT_FINISHED,
    EXIT_HARDWARE,
    EXIT_PROGRAM_FAILED,
)
from ebb.elastic.launch import hardware_check
from ebb.elastic.launch.hardware_check import GpuTest
from ebb.elastic.launch.reclaim import say as say_in_log

COMMAND = (sys.executable, "-m", "ebb.elastic.launch.burn_in_tests")
USUAL_SECONDS: Final = 60
FOLDER: Final = "burn-in"  # in the job's output folder
PROGRESS_SECONDS = 10.0  # between two lines in the log
_LINKS_SHARE = 0.1  # of the time, where there are links to test
_CPU_PATIENCE = 5  # cores that others use as well answer late, and no later than that a CPU is broken
_ADVICE = "; `nvidia-smi -q` and `dmesg | grep Xid` there say more"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # the kernel's: the same in all containers, until the machine starts anew
# GPUs of one model differ by a few percent in what they compute; a copy may be slower by a half where its memory is another
# socket's, and NVLink has more lanes between some pairs than between others. Not measured here: no machine with several GPUs.
_SLOW: Final = {"memory": 0.75, "products": 0.75, "copies": 0.4, "links": 0.4}
_SENT_BLOCK, _SENT_BLOCKS = 2**20, 256
_NETWORK_SECONDS = 20.0


def seconds_of(environment: Mapping[str, str]) -> float:
    """The seconds that are asked for; 0: no burn-in. Raises ValueError."""
    text = environment.get(ENV_BURN_IN_SECONDS, "")
    if not text:
        return 0.0
    if not text.isdigit() or not int(text):
        raise ValueError(f"{ENV_BURN_IN_SECONDS} is {text!r}; allowed: whole seconds, such as {USUAL_SECONDS}; empty: no burn-in")
    return float(text)


class BurnIn:
    """One for a machine. `seconds`: 0 for none; `devices`: cuda, cpu, or a list such as cpu,cpu; `folder`: for its figures."""

    def __init__(
        self,
        seconds: float,
        *,
        devices: str,
        say: Callable[[str], None],
        folder: Path | None = None,
        machine: str = "",
        command: Sequence[str] | None = None,
        silent_seconds: float | None = None,
    ) -> None:
        self._seconds, self._devices, self._say = seconds, devices, say
        self._command = list(COMMAND if command is None else command)
        usual = hardware_check.SILENT_SECONDS * (_CPU_PATIENCE if "cpu" in devices else 1)
        self._silent_seconds = usual if silent_seconds is None else silent_seconds
        self._file = folder / f"{machine}.json" if folder else None
        self.figures: dict[str, Any] = {}
        self.untested = False

    @classmethod
    def of(cls, environment: Mapping[str, str], *, say: Callable[[str], None]) -> Self:
        """One that does nothing where none is asked for, or this machine has been through. Raises ValueError."""
        seconds = seconds_of(environment)
        output = environment.get(ENV_OUTPUT_DIR)
        folder, machine = Path(output) / FOLDER if output else None, machine_id(environment)
        if seconds and folder and (folder / f"{machine}.json").exists():
            say("this machine has been through the job's burn-in before")
            seconds = 0.0
        return cls(seconds, devices=find_kind(), say=say, folder=folder, machine=machine)

    def run(self) -> str:
        """The fault of a device as a sentence, or "". What cannot be tested is said, and is none."""
        if not self._seconds:
            return ""
        self._say(f"burn-in: testing this machine for about {self._seconds:g} s before it begins work")
        found: list[dict[str, str]] = []
        fault = self._child(["find", "--device", self._devices], lambda line: found.extend(line.get("devices", ()))).finish()
        if fault:
            return fault
        if not found:
            self.untested = True
            self._say("burn-in: no device was found to test; going on")
            return ""
        several = len(found) > 1
        if fault := self._test_devices(found, self._seconds * (1 - _LINKS_SHARE * several)):
            return fault
        if several and (fault := self._test_links(found, self._seconds * _LINKS_SHARE)):
            return fault
        self._compare()
        return ""

    def try_network(self, address: str) -> str:
        """Send bytes to this machine's own address, as the others will; the fault as a sentence, or ""."""
        if not self._seconds:
            return ""
        try:
            wrong, speed = send_to_itself(address)
        except OSError as error:
            return f"this machine does not get through to itself at {address!r}: {error}"
        if wrong:
            return f"{wrong} of {_SENT_BLOCKS} MiB that this machine sent to itself at {address!r} are not what was sent"
        self.figures["network"] = {"address": address, "gb_per_second": speed}
        self._say(f"burn-in: network to its own address {address}: {speed:g} GB/s")
        return ""

    def keep(self) -> None:
        """Leave the figures for people, and for a launcher that is started again here."""
        if not self._seconds:
            return
        self._say(f"burn-in: done: {json.dumps(self.figures)}")
        if self._file is None or self.untested:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            new = self._file.with_suffix(f".{os.getpid()}.new")
            new.write_text(json.dumps(self.figures) + "\n")
            new.replace(self._file)
        except OSError as error:
            self._say(f"burn-in: {self._file} cannot be written: {error.strerror}; a restart tests this machine again")

    def _child(self, arguments: Sequence[str], heard: Callable[[Mapping[str, Any]], None]) -> GpuTest:
        return GpuTest(
            command=[*self._command, *arguments],
            silent_seconds=self._silent_seconds,
            say=self._say,
            heard=heard,
            advice=_ADVICE,
            by_hand=" ".join(("python -m ebb.elastic.launch.burn_in_tests", *arguments)),
        )

    def _test_devices(self, found: Sequence[Mapping[str, str]], seconds: float) -> str:
        """All at the same time, each in a process of its own."""
        heard: list[dict[str, Any]] = [{} for _ in found]
        tests = [
            self._child(["device", "--device", each["device"], "--seconds", f"{seconds:g}"], said.update)
            for each, said in zip(found, heard)
        ]
        faults = self._finish(tests, heard)
        self.figures["devices"] = [{**each, **said.get("figures", {})} for each, said in zip(found, heard)]
        for device in self.figures["devices"]:
            if "memory" in device:
                self._say(f"burn-in: {sentence(device)}")
        self.untested = None in faults
        broken = [fault for fault in faults if fault]
        for fault in broken[1:]:
            self._say(f"burn-in: {fault}")
        return broken[0] if broken else ""  # the last line, of which the controller passes on 300 characters

    def _test_links(self, found: Sequence[Mapping[str, str]], seconds: float) -> str:
        heard: list[dict[str, Any]] = [{}]
        devices = ",".join(each["device"] for each in found)
        test = self._child(["links", "--device", devices, "--seconds", f"{seconds:g}"], heard[0].update)
        (fault,) = self._finish([test], heard)
        self.figures["links"] = heard[0].get("figures", [])
        for direct, way in ((True, "NVLink or PCIe"), (False, "the host's memory")):
            speeds = [link["gb_per_second"] for link in self.figures["links"] if link["direct"] is direct]
            if speeds:
                self._say(f"burn-in: {len(speeds)} links over {way}: {min(speeds):g} to {max(speeds):g} GB/s")
        return fault or ""

    def _finish(self, tests: Sequence[GpuTest], heard: Sequence[Mapping[str, Any]]) -> list[str | None]:
        """The answers of tests that run at the same time, with a line about them now and then."""
        answers: list[str | None] = [None for _ in tests]

        def wait(number: int) -> None:
            answers[number] = tests[number].finish()

        threads = [threading.Thread(target=wait, args=(number,), daemon=True) for number in range(len(tests))]
        began = told = time.monotonic()
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)  # in the main thread: a notice interrupts it
                    if time.monotonic() - told >= PROGRESS_SECONDS:
                        told = time.monotonic()
                        self._say(f"burn-in: {told - began:.0f} s: {_progress(heard)}")
        finally:
            for test in tests:
                test.kill()
        return answers

    def _compare(self) -> None:
        slow = find_slow(self.figures.get("devices", ()), self.figures.get("links", ()))
        self.figures["slow"] = slow
        for each in slow:
            self._say(f"burn-in: {each}")


def find_kind() -> str:
    """`cuda` where the driver has made device files of GPUs."""
    return "cuda" if any(hardware_check.DEVICES.glob("nvidia[0-9]*")) else "cpu"


def machine_id(environment: Mapping[str, str]) -> str:
    """A name for this machine since it was started, and for those of its GPUs that this container has."""
    with contextlib.suppress(OSError):
        boot = _BOOT_ID.read_text().strip()
        gpus = sorted(path.name for path in hardware_check.DEVICES.glob("nvidia[0-9]*"))
        visible = [environment.get(name, "") for name in ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")]
        node = environment.get(ENV_NODE_NAME, "")
        text = "\n".join([boot, node, *gpus, *visible])
        return "-".join(filter(None, [node, hashlib.sha256(text.encode()).hexdigest()[:12]]))
    return f"{socket.gethostname()}-{os.getpid()}"  # no Linux: it is tested each time


def find_slow(devices: Sequence[Mapping[str, Any]], links: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences about devices and links that are far slower than the others of their model and kind in this machine."""
    found = []
    for device in devices:
        others = [_speeds(each) for each in devices if each is not device and each["model"] == device["model"]]
        for (test, name), speed in _speeds(device).items():
            speeds = [each[test, name] for each in others if (test, name) in each]
            if speeds and speed < _SLOW[test] * median(speeds):
                found.append(
                    f"{device['device']} ({device['model']}) is slow: {name} {speed:g}, where the others of this machine have "
                    f"{median(speeds):g}"
                )
    for link in links:
        speeds = [each["gb_per_second"] for each in links if each is not link and each["direct"] == link["direct"]]
        if speeds and link["gb_per_second"] < _SLOW["links"] * median(speeds):
            found.append(
                f"the link from GPU {link['from']} to GPU {link['to']} is slow: {link['gb_per_second']:g} GB/s, where the others "
                f"of this machine have {median(speeds):g}"
            )
    return found


def _speeds(device: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Test and name with unit -> figure; more is better."""
    memory, products, copies = (device.get(name, {}) for name in ("memory", "products", "copies"))
    found = {("products", f"TFLOP/s in {name}"): each["tflops"] for name, each in products.items()}
    if memory:
        found["memory", "GB/s of memory"] = memory["write_gb_per_second"]
    if copies:
        found["copies", "GB/s from the host"] = copies["to_gb_per_second"]
        found["copies", "GB/s to the host"] = copies["from_gb_per_second"]
    return found


def sentence(device: Mapping[str, Any]) -> str:
    """A device's figures, for people."""
    memory, copies = device["memory"], device["copies"]
    products = ", ".join(f"{name} {each['tflops']:g}" for name, each in device["products"].items())
    return (
        f"{device['device']} ({device['model']}): {memory['tested_gib']:g} of {memory['total_gib']:g} GiB hold "
        f"{memory['patterns_written']} patterns, written at {memory['write_gb_per_second']:g} GB/s; TFLOP/s: {products}; "
        f"copies {copies['to_gb_per_second']:g} GB/s to it and {copies['from_gb_per_second']:g} back"
    )


def _progress(heard: Sequence[Mapping[str, Any]]) -> str:
    last = next((said for said in heard if "progress" in said and "done" not in said), None)
    if last is None:
        return "torch and CUDA are starting" if not any("progress" in said for said in heard) else "finishing"
    of = f", on the first of {len(heard)} devices" if len(heard) > 1 else ""
    return f"{last['test']}: {last['progress']}{of}"


def send_to_itself(address: str) -> tuple[int, float]:
    """Send blocks over TCP to that address of this machine; the number of wrong ones, and GB/s. Raises OSError."""
    block, received, wrong = os.urandom(_SENT_BLOCK), bytearray(_SENT_BLOCK), 0
    family, *_, place = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0]
    with socket.create_server(("", 0), family=family) as server:
        server.settimeout(_NETWORK_SECONDS)
        with socket.create_connection((str(place[0]), server.getsockname()[1]), timeout=_NETWORK_SECONDS) as sender:
            taker, _ = server.accept()
            with taker, _sending(sender, block):
                taker.settimeout(_NETWORK_SECONDS)
                began = time.perf_counter()
                for _ in range(_SENT_BLOCKS):
                    _fill(taker, memoryview(received))
                    wrong += received != block
                seconds = time.perf_counter() - began
    return wrong, float(f"{_SENT_BLOCKS * _SENT_BLOCK / seconds / 1e9:.3g}")


@contextlib.contextmanager
def _sending(sender: socket.socket, block: bytes) -> Iterator[None]:
    def send() -> None:
        with contextlib.suppress(OSError):  # the other end says what is wrong
            for _ in range(_SENT_BLOCKS):
                sender.sendall(block)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            sender.shutdown(socket.SHUT_RDWR)
        thread.join()


def _fill(taker: socket.socket, left: memoryview) -> None:
    while left:
        count = taker.recv_into(left)
        if not count:
            raise ConnectionResetError("the connection was closed in the middle")
        left = left[count:]


def main(arguments: Sequence[str]) -> int:
    """Test this machine; lines on stderr, the figures as one line of JSON on stdout. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m ebb.elastic.launch.burn_in",
        description="Tests this machine's GPUs (or its CPU), the links between them and the way to itself. Ends with one line of "
        f"JSON, and with {EXIT_HARDWARE} and a sentence if something is broken.",
    )
    parser.add_argument("--seconds", type=_positive, default=float(USUAL_SECONDS), help="default: %(default)g")
    parser.add_argument("--device", default=find_kind(), help="cuda, cpu, or a list such as cuda:0,cuda:1; default: %(default)s")
    parser.add_argument("--address", default="localhost", help="this machine's own, as others reach it; default: %(default)s")
    asked = parser.parse_args(arguments)
    burn_in = BurnIn(asked.seconds, devices=asked.device, say=say_in_log)
    fault = burn_in.run() or burn_in.try_network(asked.address)
    print(json.dumps({**burn_in.figures, "fault": fault}), flush=True)
    if fault:
        say_in_log(f"burn-in: {fault}")
        return EXIT_HARDWARE
    return EXIT_PROGRAM_FAILED if burn_in.untested else EXIT_FINISHED


def _positive(text: str) -> float:
    seconds = float(text)
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0")
    return seconds


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
