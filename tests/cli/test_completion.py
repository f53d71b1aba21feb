"""Completion: job names from a real server, nothing at all when it is slow or away; bash does what a user would see."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ebb.cli.app import app
from tests.cli.program import EBB
from tests.cli.world import elastic_job, known_secret, platform_map
from tests.client.expiring import serving

JOBS = ("digits", "digits-2", "imagenet")
EBB_SCRIPT = Path(sys.executable).with_name("ebb")
# What each shell's script sets before it calls `ebb`, for the words `ebb status di`.
ASKED = {
    "bash": {"_EBB_COMPLETE": "complete_bash", "COMP_WORDS": "ebb status di", "COMP_CWORD": "2"},
    "zsh": {"_EBB_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "ebb status di"},
    "fish": {
        "_EBB_COMPLETE": "complete_fish", "_TYPER_COMPLETE_ARGS": "ebb status di", "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    },
}  # fmt: skip


def alone(environment: dict[str, str]) -> dict[str, str]:
    """As a shell would have it, with nothing of this process' own but the path."""
    return {"PATH": f"{EBB_SCRIPT.parent}{os.pathsep}{os.environ['PATH']}", "HOME": "/nonexistent"} | environment


async def completed(**environment: str) -> tuple[str, str]:
    """Return the answer of `ebb` to a shell that completes a word."""
    code, out, err = await EBB.run("-c", "from ebb.cli.app import app; app(prog_name='ebb')", env=alone(environment))
    assert code == 0
    return out.decode(), err.decode()


@asynccontextmanager
async def platform(folder: Path) -> AsyncIterator[str]:
    """A platform with three jobs answers, while this lasts. Its kubeconfig."""
    async with serving(folder, "file") as server:
        for item in (platform_map(), *map(elastic_job, JOBS), known_secret("hf-token"), known_secret("wandb")):
            server.put(item)
        yield str(server.kubeconfig)


@pytest.mark.parametrize("words", ["ebb submit --secret h", "ebb secret rm h"])
async def test_secret_names_are_completed(tmp_path: Path, words: str) -> None:
    asked = {"_EBB_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    async with platform(tmp_path) as kubeconfig:
        assert await completed(EBB_KUBECONFIG=kubeconfig, **asked) == ("hf-token\n", "")


@pytest.mark.parametrize("shell", ASKED)
async def test_job_names_are_completed(tmp_path: Path, shell: str) -> None:
    async with platform(tmp_path) as kubeconfig:
        words, errors = await completed(EBB_KUBECONFIG=kubeconfig, **ASKED[shell])
    assert errors == ""
    for name in JOBS[:2]:
        assert name in words
    assert "imagenet" not in words


async def test_bash_completes_what_a_user_types(tmp_path: Path) -> None:
    if not shutil.which("bash"):
        pytest.skip("no bash here")
    script = (
        'eval "$(ebb completion bash)"; '
        'COMP_WORDS=(ebb delete digits di); COMP_CWORD=3; _ebb_completion ebb; echo "jobs: ${COMPREPLY[*]}"; '
        'COMP_WORDS=(ebb sta); COMP_CWORD=1; _ebb_completion ebb; echo "verbs: ${COMPREPLY[*]}"; '
        "complete -p ebb"
    )
    async with platform(tmp_path) as kubeconfig:
        env = alone({"EBB_KUBECONFIG": kubeconfig})
        command = ["bash", "--norc", "-c", script]
        done = await asyncio.to_thread(subprocess.run, command, env=env, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    jobs, verbs, registered = done.stdout.splitlines()
    assert jobs == "jobs: digits-2"  # the other one is on the line already
    assert verbs == "verbs: status"
    assert registered.endswith("-F _ebb_completion ebb")


async def test_who_never_answers_costs_a_second_and_no_word(tmp_path: Path) -> None:
    heard = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.set()
        await reader.read()
        writer.close()

    async with serving(tmp_path, "file") as answering, await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        good = answering.kubeconfig.read_text()
        (tmp_path / "mute").write_text(good.replace(good.split("127.0.0.1:")[1].split('"')[0], str(port)))
        usual = time.monotonic()
        await completed(EBB_KUBECONFIG=str(tmp_path / "none"), **ASKED["bash"])
        began = time.monotonic()
        words, errors = await completed(EBB_KUBECONFIG=str(tmp_path / "mute"), **ASKED["bash"])
        took = time.monotonic() - began
    assert heard.is_set()
    assert (words.strip(), errors) == ("", "")
    assert took < (began - usual) + 3  # a second, and what else this machine does


@pytest.mark.parametrize("kubeconfig", ["/nowhere/config", __file__], ids=["none", "nonsense"])
async def test_without_a_platform_there_is_no_word(kubeconfig: str) -> None:
    words, errors = await completed(EBB_KUBECONFIG=kubeconfig, **ASKED["bash"])
    assert (words.strip(), errors) == ("", "")


@pytest.mark.parametrize("shell", ASKED)
def test_the_script_of_each_shell(shell: str) -> None:
    result = CliRunner().invoke(app, ["completion", shell])
    assert result.exit_code == 0
    assert f"_EBB_COMPLETE=complete_{shell}" in result.stdout
