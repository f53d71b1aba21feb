"""Machines with a network of their own, so that one can fall silent: its link goes down, and no connection of it is closed.

    with Network() as network:                      # raises BenchmarkError where this process may not make namespaces
        number = network.attach()                   # of a new machine
        network.within(number)                      # the words before a command that then runs there
        network.silence(number)                     # as a machine that loses its power, or a cable that is cut
    network.cut(number, other)                  # nothing that the other one sends arrives there any more; refuse=True: it is told
    network.heal(number)                        # of all that it did not hear
    network.shape(number, 5.0)                  # it sends 5 Gb/s at most

A stopped process will not do: its kernel still answers for its connections. Each machine is a network namespace with a veth to a
switch, which is one too (network.within(0)), so the host's own network is left alone. Root makes them; anybody else does where
the kernel lets users have namespaces. They go with the process that holds them, and the kernel ends that one when this process
dies.
"""

import os
import subprocess
from collections.abc import Sequence
from typing import Self

from benchmarks.controller.processes import BenchmarkError
from devcluster.commands import dies_with_us

_HOLD = ["sh", "-c", "echo ready && exec sleep infinity"]
_BURST_BYTES = 2**18  # a few of the packets that the kernel hands on as one: a bucket must hold the largest
_MTU = "65000"  # near the loopback's: the other changes are played on that


class Network:
    """The switch, which is number 0, and its machines."""

    def __init__(self) -> None:
        self._as_user = os.geteuid() != 0
        self._holders: dict[int, subprocess.Popen[bytes]] = {}
        self._next = 0

    def __enter__(self) -> Self:
        users = ["--user", "--map-root-user"] if self._as_user else []
        try:
            self._hold(0, ["unshare", *users, "--net"])
            self._run(0, "link", "set", "lo", "up")
            self._run(0, "link", "add", "switch", "type", "bridge")
            self._run(0, "addr", "add", f"{self.address(0)}/16", "dev", "switch")
            self._run(0, "link", "set", "switch", "up")
        except (OSError, BenchmarkError) as error:
            self.__exit__()
            raise BenchmarkError(f"no network namespaces here: {error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        for number in reversed(list(self._holders)):
            self._end(number)

    def address(self, number: int) -> str:
        return f"10.73.{number // 250}.{number % 250 + 1}"

    def attach(self) -> int:
        """The number of a new machine. None is used twice: neighbours remember hardware addresses."""
        number = self._next = self._next + 1
        self._hold(number, [*self.within(0), "unshare", "--net"])
        holder = str(self._holders[number].pid)
        ends = ["link", "add", f"m{number}", "mtu", _MTU, "type", "veth", "peer", "name", "eth0", "mtu", _MTU, "netns", holder]
        self._run(0, *ends)
        self._run(0, "link", "set", f"m{number}", "master", "switch", "up")
        self._run(number, "link", "set", "lo", "up")
        self._run(number, "addr", "add", f"{self.address(number)}/16", "dev", "eth0")
        self._run(number, "link", "set", "eth0", "up")
        return number

    def silence(self, number: int) -> None:
        self._run(0, "link", "set", f"m{number}", "down")

    def cut(self, number: int, other: int, *, refuse: bool = False) -> None:
        """One way: packets of `other` are dropped at this machine. Refused ones come back at once, and go no way."""
        if refuse:
            rule = ["OUTPUT", "-d", self.address(other), "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset"]
        else:
            rule = ["INPUT", "-s", self.address(other), "-j", "DROP"]
        self._filter(number, "-A", *rule)

    def heal(self, number: int) -> None:
        self._filter(number, "-F")

    def shape(self, number: int, gigabits: float) -> None:
        """Bound what this machine sends, by the kernel's token bucket. Raises BenchmarkError where the kernel has none."""
        words = ["qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", f"{gigabits * 1e3:.0f}mbit"]
        self._run(number, *words, "burst", f"{_BURST_BYTES}b", "latency", "5ms", program="tc")

    def within(self, number: int) -> list[str]:
        users = ["--user", "--preserve-credentials"] if self._as_user else []
        return ["nsenter", "--target", str(self._holders[number].pid), *users, "--net", "--"]

    def _hold(self, number: int, command: Sequence[str]) -> None:
        held = subprocess.Popen(
            [*command, *dies_with_us(), *_HOLD], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self._holders[number] = held
        assert held.stdout is not None
        assert held.stderr is not None
        if held.stdout.readline() != b"ready\n":
            raise BenchmarkError(held.stderr.read().decode(errors="replace").strip() or f"{command[0]} ended")

    def _end(self, number: int) -> None:
        held = self._holders.pop(number, None)
        if held is not None:
            held.kill()
            held.communicate()

    def _filter(self, number: int, *words: str) -> None:
        self._run(number, *words, program="iptables")

    def _run(self, number: int, *words: str, program: str = "ip") -> None:
        done = subprocess.run([*self.within(number), program, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchmarkError(f"{program} {' '.join(words)}: {done.stderr.strip()}")
