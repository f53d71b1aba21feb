"""What is read from the output of each contender."""

import json
import random
from pathlib import Path

import pytest

from benchmarks.trainer import figures
from benchmarks.trainer.__main__ import in_turns, read_settings
from benchmarks.trainer.contenders import CONTENDERS, offered

PRINTED = """=> creating model: resnet18
Epoch: [0][0/5]	Time 9.000 ( 9.000)	Data  1.000 ( 1.000)	Loss 7.0e+00 (7.0e+00)
Epoch: [0][1/5]	Time  2.000 ( 2.000)	Data  0.010 ( 0.010)	Loss 7.0e+00 (7.0e+00)
Epoch: [0][2/5]	Time  2.000 ( 2.000)	Data  0.010 ( 0.010)	Loss 7.0e+00 (7.0e+00)
Epoch: [0][3/5]	Time  1.500 ( 2.000)	Data  0.010 ( 0.010)	Loss 7.0e+00 (7.0e+00)
Epoch: [0][4/5]	Time  2.500 ( 2.000)	Data  0.010 ( 0.010)	Loss 7.0e+00 (7.0e+00)
Test: [0/1]	Time 90.000 (90.000)	Loss 7.0e+00 (7.0e+00)
"""


def written(times: list[float], **more: float) -> str:
    lines = [{"time": time, "step": number + 1, "useful_seconds": time, **more} for number, time in enumerate(times)]
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_the_rate_of_the_original_is_of_its_steps_after_the_first() -> None:
    assert figures.rate_of_original(PRINTED, 16) == 16 * 2 / 4.0
    with pytest.raises(ValueError, match="no step"):
        figures.rate_of_original("=> creating model", 16)


def test_the_rate_of_ours_is_of_the_moments_between_steps() -> None:
    assert figures.rate_of_ours(written([9.0, 10.0, 11.0, 13.0, 15.0]), 16) == 8.0
    with pytest.raises(ValueError, match="no step"):
        figures.rate_of_ours(written([9.0, 10.0, 11.0]), 16)


def test_stalls_and_waiting() -> None:
    lines = written([1.0, 2.0, 3.0, 4.0], checkpoint_seconds=0.1, checkpoint_step=0).splitlines()
    lines[2] = json.dumps({**json.loads(lines[2]), "checkpoint_step": 2})
    lines[3] = json.dumps({**json.loads(lines[3]), "checkpoint_step": 3, "useful_seconds": 9.9})
    seconds, share = figures.stalls("\n".join(lines) + "\n")
    assert seconds == 0.05
    assert share == pytest.approx(0.01)
    assert figures.waited("\n".join(lines) + "\n") is None
    assert figures.waited(written([1.0] * 5, step_seconds=0.5, data_seconds=0.1)) == 0.2


def test_the_summary_and_what_is_broken() -> None:
    rates = {"original": [4.0, 5.0, 6.0], "ours": [8.0, 10.0, 12.0], "synthetic": [10.0, 12.5, 15.0], "fp32": [4.0, 5.0]}
    found = figures.summary(rates)
    assert found == {
        "original_images_per_second": 5.0,
        "ours_images_per_second": 10.0,
        "synthetic_images_per_second": 12.5,
        "fp32_images_per_second": 4.5,
        "ratio_to_original": 2.0,
        "real_to_synthetic": 0.8,
        "noise": {"ratio_to_original": 0.0, "real_to_synthetic": 0.0},  # a machine that slows down hinders all alike
        "choices": {"fp32": 0.5},
    }
    assert figures.broken(found) == ["real_to_synthetic is 0.8 (noise 0.0), less than 0.9"]
    slow = {"ratio_to_original": 0.9, "checkpoint_stall_seconds": 0.06}
    assert [line.split(" ")[0] for line in figures.broken(slow)] == ["ratio_to_original", "a"]


def test_the_noise_is_that_of_a_median() -> None:
    generator = random.Random(0)
    draws = [figures.ratio([1 + generator.gauss(0, 0.05) for _ in range(25)], [1.0] * 25) for _ in range(400)]
    missed = sum(abs(median - 1) > noise for median, noise in draws)
    assert 0.02 < missed / len(draws) < 0.12, "two standard errors hold about 19 of 20"


def test_what_the_noise_hides_is_neither_kept_nor_broken() -> None:
    found = {"ratio_to_original": 0.97, "noise": {"ratio_to_original": 0.04}}
    assert figures.broken(found) == []
    [line] = figures.unclear(found)
    assert line.startswith("ratio_to_original is 0.97, wanted 1, and the noise 0.04")
    found["noise"] = {"ratio_to_original": 0.02}
    assert figures.unclear(found) == []
    assert len(figures.broken(found)) == 1
    assert len(figures.unclear({"ratio_to_original": 1.01, "noise": {"ratio_to_original": 0.04}})) == 1
    assert figures.unclear({"ratio_to_original": 1.05, "noise": {"ratio_to_original": 0.04}}) == []


def test_promises_have_every_round_and_choices_the_first() -> None:
    turns = [each.name for each in in_turns(CONTENDERS, 3)]
    assert turns[-5:] == ["original", "original_loading", "ours", "synthetic", "checkpoints"]
    assert turns.count("ours") == 3
    assert turns.count("contiguous") == 2
    assert turns[: len(CONTENDERS)] == turns[2 * len(CONTENDERS) - 1 : len(CONTENDERS) - 1 : -1]


def test_only_what_the_trainer_offers_is_measured() -> None:
    names = [each.name for each in offered(CONTENDERS, "--augment NAME --workers N")]
    assert names == ["original", "original_loading", "ours", "synthetic", "no_loader_process", "shards", "memory_given_back"]


def test_settings_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--only", "nobody"], ["--upstream", str(tmp_path / "main.py")], ["--steps", "4"]):
        with pytest.raises(SystemExit):
            read_settings(arguments)
    assert "there is no such file" in capsys.readouterr().err
