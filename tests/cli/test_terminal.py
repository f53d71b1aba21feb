"""Colour only where somebody wants it, and never more than 80 columns on a terminal of 80: all verbs with tables, whole processes
on a real pseudo terminal and into a pipe."""

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import termios
from collections.abc import Sequence
from pathlib import Path

import pytest

from ebb.kube import Object
from tests.cli.program import EBB, MAIN
from tests.cli.test_look import PROGRESS, RUNNING
from tests.cli.world import elastic_job, node_group, platform_map, worker_pod
from tests.client.expiring import serving
from tests.client.jobs.test_top import node
from tests.client.timeline.test_timeline import event

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
LONG = "an-experiment-whose-name-somebody-made-as-long-as-it-may"
MACHINE = "ip-10-0-123-123.us-west-2.compute.internal"
VERBS: dict[str, tuple[str, ...]] = {
    "list": ("list",), "status": ("status", LONG), "events": ("events", LONG), "top": ("top", "--once"), "gpus": ("gpus",),
    "cost estimate": ("cost", "--gpus", "4"),
}  # fmt: skip


def world() -> list[Object]:
    """A job whose every text is as long as it may be."""
    group = node_group(
        "a-node-group-with-a-long-name", "europe-west4-a", instanceType="Standard_NC24ads_A100_v4", gpuType="A100-80"
    )
    placement = {"zone": "europe-west4-a", "capacityType": "spot", "gpuType": "A100-80"}
    progress = {**PROGRESS, "step": 125000, "totalSteps": 12500000, "usefulSeconds": 9e5, "at": "2026-11-21T12:03:00Z"}
    job = elastic_job(
        LONG, replicas=16, replicaStatuses={"Worker": {"active": 16}}, placement=placement, progress=progress, reclaims=123,
        history=RUNNING["status"]["history"], cost={"usdSpent": 12345.6, "usdOnDemand": 45678.9, "usdPerHour": 123.45},
    )  # fmt: skip
    pod = worker_pod(0, job=LONG, node=MACHINE)
    pod["metadata"]["name"] = f"{LONG}-worker-0"
    machine = node(MACHINE, group="a-node-group-with-a-long-name", gpus=8)
    machine["metadata"]["labels"] |= {"node.kubernetes.io/instance-type": "Standard_NC24ads_A100_v4"}
    told = event("FailedScheduling", "0/31 nodes are available: " + "words " * 60, at="12:00:02", pod=0, count=12)
    told["involvedObject"]["name"] = f"{LONG}-worker-0"
    told["metadata"] = {"name": "e1", "namespace": "elastic-job", "uid": "e1"}
    return [platform_map(group), job, elastic_job("b", state="Waiting"), pod, machine, told]


async def asked(folder: Path, words: Sequence[str], *, terminal: bool, **environment: str) -> str:
    """What `ebb` shows, on a terminal of 80 columns or in a pipe."""
    async with serving(folder, "file") as server:
        for item in world():
            server.put(item)
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "xterm-256color", "TZ": "UTC"}
        env |= {"EBB_KUBECONFIG": str(server.kubeconfig), **environment}
        if terminal:
            code, out, err = *await asyncio.to_thread(_on_a_terminal, words, env), b""
        else:
            code, out, err = await EBB.run(*MAIN, *words, env=env)
    assert code == 0, out + err
    return out.decode()


def _on_a_terminal(words: Sequence[str], env: dict[str, str], interrupt_at: bytes | None = None) -> tuple[int, bytes]:
    """The exit code and all that is seen; Ctrl-C once `interrupt_at` is there to see."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    program = EBB.start(*MAIN, *words, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    while True:
        try:
            seen += os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if interrupt_at is not None and interrupt_at in seen:
            program.send_signal(signal.SIGINT)
            interrupt_at = None
    os.close(ours)
    return program.wait(), seen


@pytest.mark.parametrize("words", VERBS.values(), ids=VERBS)
async def test_80_columns_and_colour_on_a_terminal(tmp_path: Path, words: tuple[str, ...]) -> None:
    text = await asked(tmp_path, words, terminal=True)
    lines = ESCAPE.sub("", text).splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 80, max(lines, key=len)
    if words in COLOURED:
        assert "\x1b[" in text


COLOURED = [VERBS[name] for name in ("list", "status", "top")]
LIVE = {"top": ("top", "--every", "1"), "status": ("status", LONG, "--watch"), "events": ("events", LONG, "-f")}
SHOWN = {"top": b"GPUs busy", "status": b"generation", "events": b"goes to"}


@pytest.mark.parametrize("words", LIVE.values(), ids=LIVE)
async def test_ctrl_c_ends_the_looking_and_leaves_jobs_alone(tmp_path: Path, words: tuple[str, ...]) -> None:
    async with serving(tmp_path, "file") as server:
        for item in world():
            server.put(item)
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "xterm", "EBB_KUBECONFIG": str(server.kubeconfig)}
        code, text = await asyncio.to_thread(_on_a_terminal, words, env, SHOWN[words[0]])
    assert code == 130
    assert "ebb: stopped watching; jobs continue." in text.decode()
    assert b"Traceback" not in text


@pytest.mark.parametrize("words", COLOURED)
async def test_no_color_is_heeded(tmp_path: Path, words: tuple[str, ...]) -> None:
    """No colour; bold is none (https://no-color.org)."""
    text = await asked(tmp_path, words, terminal=True, NO_COLOR="1")
    assert not re.findall(r"\x1b\[[0-9;]*(?:3[0-9]|4[0-9]|9[0-9])m", text)


@pytest.mark.parametrize("words", VERBS.values(), ids=VERBS)
async def test_a_pipe_gets_whole_words_and_no_colour(tmp_path: Path, words: tuple[str, ...]) -> None:
    text = await asked(tmp_path, words, terminal=False)
    assert "\x1b" not in text
    assert "…" not in text
    if words in COLOURED:
        assert LONG in text
