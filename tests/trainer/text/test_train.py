"""A small language model through the public API: it learns, and stopped at a notice it ends with the same bits as undisturbed."""

import json
import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from ebb import elastic
from ebb.elastic.contract import EXIT_FINISHED, EXIT_PROGRAM_FAILED
from ebb.elastic.notices.notice import Notice
from trainer.text.train import TextConfig, learn, main, parse

TEXT = b"the quick brown fox jumps over the lazy dog. "


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    (folder / "train.bin").write_bytes(TEXT * 120)  # 84 windows of 64 bytes
    (folder / "val.bin").write_bytes(TEXT * 10)
    return folder


def settings(data: Path, output: Path, *more: str) -> list[str]:
    base = ["--data", str(data), "--output", str(output), "--size", "tiny", "--lr", "0.003", "--epochs", "20"]
    return [*base, "--global-batch", "16", "--threads", "1", "--workers", "0", "--log-every", "20", "--device", "cpu", *more]


def run(config: TextConfig, notice: Notice) -> bool:
    """Whether it ran to its end."""
    try:
        with elastic.start(config, notice=notice) as one:
            learn(config, one)
    except elastic.GracefulExit:
        return False
    return True


def result(output: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((output / "result.json").read_text())
    return content


def entropy_of_single_bytes() -> float:
    """In bits: the best that can be done without looking at the bytes before."""
    shares = [count / len(TEXT) for count in Counter(TEXT).values()]
    return -sum(share * math.log2(share) for share in shares)


@pytest.mark.e2e
def test_it_learns_and_a_notice_changes_no_bit(data: Path, tmp_path: Path) -> None:
    calm, stormy = tmp_path / "calm", tmp_path / "stormy"
    assert run(parse(settings(data, calm), {}), Notice())
    told = Notice()
    told.give()
    assert [run(parse(settings(data, stormy), {}), told) for _ in range(3)] == [False] * 3
    assert run(parse(settings(data, stormy), {}), Notice())
    assert result(stormy)["weights_sha256"] == result(calm)["weights_sha256"]
    assert (result(stormy)["step"], result(stormy)["generation"]) == (105, 4)
    assert result(calm)["validation_bits_per_token"] < 0.9 * entropy_of_single_bytes()


@pytest.mark.e2e
def test_adapters_are_tuned_through_a_notice_and_are_all_that_is_kept(data: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    assert run(parse(settings(data, tmp_path / "pretrained", "--epochs", "4", "--export", str(base)), {}), Notice())
    tuned = ["--weights", str(base), "--lora", "4", "--size", "10m", "--epochs", "6", "--export"]
    calm, stormy, told = tmp_path / "calm", tmp_path / "stormy", Notice()
    told.give()
    assert run(parse([*settings(data, calm, *tuned, str(calm / "adapters"))], {}), Notice())
    assert not run(parse([*settings(data, stormy, *tuned, str(stormy / "adapters"))], {}), told)
    assert run(parse([*settings(data, stormy, *tuned, str(stormy / "adapters"))], {}), Notice())
    kept = [load_file(folder / "adapters" / "adapter_model.safetensors") for folder in (calm, stormy)]
    assert all(torch.equal(each, kept[1][name]) for name, each in kept[0].items())
    assert result(stormy)["weights_sha256"] == result(calm)["weights_sha256"]
    assert result(calm)["validation_bits_per_token"] < result(tmp_path / "pretrained")["validation_bits_per_token"]
    largest = [
        max(path.stat().st_size for path in (folder / "checkpoints").rglob("*")) for folder in (tmp_path / "pretrained", calm)
    ]
    assert largest[1] < largest[0] / 2


@pytest.mark.e2e
def test_adapters_to_a_sharded_network_are_all_that_its_checkpoint_holds(data: Path, tmp_path: Path) -> None:
    """They are those of one process that has the whole network."""
    base = tmp_path / "base"
    assert run(parse(settings(data, tmp_path / "pretrained", "--epochs", "1", "--export", str(base)), {}), Notice())
    tuned = ["--weights", str(base), "--lora", "4", "--size", "10m", "--epochs", "2", "--export"]
    assert run(parse(settings(data, tmp_path / "alone", *tuned, str(tmp_path / "alone" / "adapters")), {}), Notice())
    sharded = tmp_path / "sharded"
    command = [sys.executable, "-m", "ebb.elastic.launch", "--standalone", "--nproc-per-node=2", "-m", "trainer.text.train"]
    command += settings(data, sharded, *tuned, str(sharded / "adapters"), "--shard", "--recovery", "memory")
    done = subprocess.run(command, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == EXIT_FINISHED, done.stdout + done.stderr
    kept = [load_file(folder / "adapters" / "adapter_model.safetensors") for folder in (tmp_path / "alone", sharded)]
    assert kept[0].keys() == kept[1].keys()
    assert all(torch.allclose(each, kept[1][name], atol=1e-5) for name, each in kept[0].items())
    for part in (sharded / "checkpoints").glob("*.part*"):
        with safe_open(part, framework="pt") as file:
            names = set(file.keys())
        assert len(names) == 3 * len(kept[0]), "an adapter and its two averages"
        assert not [name for name in names if "state_dict" in name and "lora_" not in name]


@pytest.mark.e2e
def test_it_learns_in_sixteen_bits_too(data: Path, tmp_path: Path) -> None:
    assert run(parse(settings(data, tmp_path, "--precision", "bf16", "--fused", "on"), {}), Notice())
    assert result(tmp_path)["validation_bits_per_token"] < 0.9 * entropy_of_single_bytes()


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("every", "steps"),
    [pytest.param("1", [6, 11, 16, 21], id="each"), pytest.param("3", [16, 21], id="third"), pytest.param("0", [21], id="last")],
)
def test_it_is_validated_after_the_epochs_that_one_asks_for_and_at_the_end(
    data: Path, tmp_path: Path, every: str, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []

    def best(run: elastic.Run, score: float, **_: float) -> bool:
        found.append(run.step)  # an evaluation ends the step whose weights it judges
        return False

    monkeypatch.setattr(elastic.Run, "best", best)
    assert run(parse(settings(data, tmp_path, "--epochs", "4", "--evaluate-every", every), {}), Notice())
    assert found == steps


@pytest.mark.parametrize(
    ("more", "words"),
    [
        pytest.param(["--data", "/nowhere"], "cannot read the text /nowhere/train.bin", id="no-data"),
        pytest.param(["--size", "huge"], "--size is 'huge'; allowed: tiny, 10m, 100m, 200m, 1b, 7b", id="size"),
        pytest.param(["--context", "65"], "--context is 65; --size tiny takes 64 at most", id="context"),
        pytest.param(["--lora", "4"], "--lora is given without --weights", id="lora"),
        pytest.param(["--weights", "/nowhere"], "--size tiny and --weights are given", id="both"),
        pytest.param(["--weights", "/nowhere", "--size", "10m"], "cannot read /nowhere/config.json", id="weights"),
        pytest.param(["--precision", "fp16"], "a CPU computes in fp32 or bf16", id="precision"),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="about a CPU")
def test_a_wrong_setting_is_one_sentence(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], words: str
) -> None:
    assert main([*settings(data, tmp_path), *more]) == EXIT_PROGRAM_FAILED
    said = capsys.readouterr().err
    assert words in said
    assert said.startswith("error: ")
    assert "Traceback" not in said


def test_the_end_has_its_code(data: Path, tmp_path: Path) -> None:
    assert main(settings(data, tmp_path, "--epochs", "1")) == EXIT_FINISHED
