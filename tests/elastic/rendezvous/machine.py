"""A machine of a job without a trainer: it meets the others through the real handler and "trains" by looking for news.

    machines = Machines(endpoint, folder); first = machines.start("a"); ...    # processes, forked from one that has torch loaded
    machines.together("a", "b")                                                # waits until just these are in one generation

Each writes what happens to it into <folder>/<name>.jsonl. In every generation all ranks exchange their names through its store,
which fails when two have different ideas of it.
"""

import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, cast

from torch.distributed.elastic.rendezvous import RendezvousClosedError, RendezvousInfo, RendezvousParameters

from ebb.elastic.rendezvous import generation
from ebb.elastic.rendezvous.handler import Etcd3Handler, create_handler
from tests.elastic.machines import NO_DNS, until

QUICK = {"last_call_timeout": 1, "join_batch_seconds": 0.3}


class Told(BaseException):
    """SIGTERM."""


def handler(endpoint: str, *, size: str = "1:4", job: str = "job", **settings: Any) -> Etcd3Handler:
    least, _, most = size.partition(":")
    return create_handler(
        RendezvousParameters("etcd3", endpoint, job, int(least), int(most), local_addr="127.0.0.1", **{**QUICK, **settings}),
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )


def exchange(info: RendezvousInfo, name: str) -> list[str]:
    """The names of all ranks, through the store of the generation."""
    keys = [f"test/{rank}" for rank in range(info.world_size)]
    info.store.set(keys[info.rank], name)
    info.store.wait(keys, timedelta(seconds=20))
    return [info.store.get(key).decode() for key in keys]


def generation_of(info: RendezvousInfo) -> generation.Generation:
    """As a worker would learn it."""
    where = info.bootstrap_store_info
    assert where is not None
    found = generation.read(
        {
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "MASTER_ADDR": where.master_addr,
            "MASTER_PORT": str(where.master_port),
        }
    )
    assert found is not None
    return found


def live(name: str, endpoint: str, path: str, environment: dict[str, str], settings: dict[str, Any]) -> None:
    os.environ.update(environment)
    signal.signal(signal.SIGTERM, _raise)
    signal.signal(signal.SIGUSR1, _lose_names)
    sys.stderr = Path(path).with_suffix(".log").open("a", buffering=1)

    def note(event: str, **more: Any) -> None:
        with Path(path).open("a") as file:
            file.write(json.dumps({"event": event, "time": time.time(), **more}) + "\n")

    membership = handler(endpoint, **settings)
    Path(path).with_suffix(".begun").touch()
    try:
        while True:
            info = membership.next_rendezvous()
            names, found = exchange(info, name), generation_of(info)
            assert found.etcd is not None
            note("in", rank=info.rank, names=names, number=found.number, addresses=dict(found.etcd.addresses))
            while not membership.num_nodes_waiting():
                time.sleep(0.02)
            note("out", lost=membership.lost)
    except Told:
        membership.leave()
        note("left")
    except RendezvousClosedError as error:
        note("closed", text=str(error))
    except BaseException as error:
        note("failed", text=repr(error))
        raise
    sys.stderr.flush()
    os._exit(0)


def _raise(_number: int, _frame: Any) -> None:
    raise Told


def _lose_names(_number: int, _frame: Any) -> None:
    """From now on nobody answers this process's look-ups. Addresses are understood as ever."""
    resolve = socket.getaddrinfo

    def look_up(host: str, *arguments: Any, **more: Any) -> Any:
        if not host[0].isdigit():
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return resolve(host, *arguments, **more)

    socket.getaddrinfo = cast(Any, look_up)


@dataclass
class Machine:
    process: ForkServerProcess
    path: Path

    def events(self) -> list[dict[str, Any]]:
        text = self.path.read_text() if self.path.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def last(self) -> dict[str, Any]:
        events = self.events()
        return events[-1] if events else {"event": "none"}

    def signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def leave(self) -> None:
        self.signal(signal.SIGTERM)
        until("left", lambda: self.last()["event"] == "left", 20)
        self.process.join()


class Machines:
    """`environment` and `settings` (of --rdzv_conf, or size="2:4") are those of all of them."""

    def __init__(self, endpoint: str, folder: Path, environment: Mapping[str, str] | None = None, **settings: Any) -> None:
        self.endpoint, self.folder, self.settings = endpoint, folder, settings
        self.environment = {**NO_DNS, **(environment or {})}
        self._all: dict[str, Machine] = {}
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__])

    def __getitem__(self, name: str) -> Machine:
        return self._all[name]

    def start(self, name: str, *, endpoint: str = "", environment: Mapping[str, str] | None = None) -> Machine:
        path = self.folder / f"{name}.jsonl"
        arguments = (name, endpoint or self.endpoint, str(path), {**self.environment, **(environment or {})}, self.settings)
        process = self._context.Process(target=live, args=arguments, daemon=True)
        process.start()
        self._all[name] = Machine(process, path)
        return self._all[name]

    def together(self, *names: str, limit_seconds: float = 40.0) -> int:
        """Wait until these, and no others, are in one generation; its number."""

        def agreed() -> int | None:
            last = [self._all[name].last() for name in names]
            same = all(each["event"] == "in" and sorted(each["names"]) == sorted(names) for each in last)
            return int(last[0]["number"]) if same and len({each["number"] for each in last}) == 1 else None

        return until(f"{names} in one generation: {[self._all[name].last() for name in names]}", agreed, limit_seconds)

    def kill_quietly(self) -> None:
        for machine in self._all.values():
            if machine.process.is_alive():
                machine.kill()

    def kill_all(self) -> None:
        for name, machine in self._all.items():
            if machine.process.is_alive():
                machine.signal(signal.SIGCONT)
                machine.kill()
            print(f"--- {name}\n" + "\n".join(map(str, machine.events())) + "\n" + machine.path.with_suffix(".log").read_text())

    def numbers(self) -> dict[int, list[list[str]]]:
        """What every machine saw of every generation: one list of names for each number, or something is very wrong."""
        seen: dict[int, list[list[str]]] = {}
        for machine in self._all.values():
            for event in machine.events():
                if event["event"] == "in":
                    seen.setdefault(event["number"], []).append(event["names"])
        return seen
