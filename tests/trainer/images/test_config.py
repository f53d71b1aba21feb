"""Settings: what a user can get wrong is a sentence with the flag, the value and the fix."""

import dataclasses
from pathlib import Path

import pytest

from ebb.elastic.runtime.config import ConfigError, Place
from trainer.images.config import TrainConfig, parse

BASE = ["--output", "/tmp/out"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for part in ("train", "val"):
        (tmp_path / part / "class0").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--global-batch", "-1"], "--global-batch is -1; it must be at least 0", id="too-small"),
        pytest.param(["--epochs", "many"], "argument --epochs: invalid int value: 'many'.*--help", id="no-number"),
        pytest.param(["--augment", "flip"], "--augment is 'flip'; allowed: shift, imagenet, none", id="no-such-choice"),
        pytest.param(["--epoch", "3"], "unrecognized arguments: --epoch", id="misspelt-flag"),
        pytest.param(["--data", "/nowhere"], "--data /nowhere: there is no folder /nowhere/train.*trainer.digits", id="no-data"),
        pytest.param(
            ["--checkpoint-seconds", "1"], "--checkpoint-min-seconds is 2.0, more than --checkpoint-seconds 1.0", id="two-limits"
        ),
    ],
)
def test_errors(data: Path, arguments: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(["--data", str(data), *BASE, *arguments], {})


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        pytest.param({"RANK": "first"}, "variable RANK is 'first'; it must be a whole number", id="rank"),
        pytest.param({"EBB_METRICS_PORT": "http"}, "variable EBB_METRICS_PORT is 'http'", id="port"),
        pytest.param({"EBB_CHECKPOINT_SECONDS": "often"}, "EBB_CHECKPOINT_SECONDS is 'often'; it must be a number", id="seconds"),
        pytest.param({"EBB_LEDGER": "maybe"}, "EBB_LEDGER is 'maybe'; it must be 1 or 0", id="ledger"),
    ],
)
def test_errors_of_the_environment(data: Path, environment: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(["--data", str(data), *BASE], environment)


@pytest.mark.parametrize(
    ("arguments", "missing"), [pytest.param(BASE, "--data", id="data"), pytest.param(["--data", "/d"], "--output", id="output")]
)
def test_what_must_be_given(arguments: list[str], missing: str) -> None:
    with pytest.raises(ConfigError, match=f"{missing} is missing"):
        parse(arguments, {})


def test_the_environment_gives_the_output_folder_the_port_and_the_place(data: Path) -> None:
    config = parse(
        ["--data", str(data)],
        {
            "EBB_OUTPUT_DIR": "/out",
            "EBB_METRICS_PORT": "9400",
            "RANK": "3",
            "WORLD_SIZE": "4",
            "LOCAL_RANK": "1",
            "LOCAL_WORLD_SIZE": "2",
            "OMP_NUM_THREADS": "5",
        },
    )
    assert (config.output, config.metrics_port, config.threads) == (Path("/out"), 9400, 5)
    assert config.place == Place(rank=3, world_size=4, local_rank=1, local_world_size=2, cores=config.place.cores)
    assert config.place.cores >= 1


def test_a_flag_wins_over_the_environment(data: Path) -> None:
    config = parse(
        ["--data", str(data), "--output", "/mine", "--metrics-port", "0", "--threads", "1", "-j", "3"],
        {"EBB_OUTPUT_DIR": "/out", "EBB_METRICS_PORT": "9400", "OMP_NUM_THREADS": "5"},
    )
    assert (config.output, config.metrics_port, config.threads, config.workers) == (Path("/mine"), 0, 1, 3)


def test_help_explains_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse(["--help"], {})
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert all(
        "--" + field.name.replace("_", "-") in text
        for field in dataclasses.fields(TrainConfig)
        if field.name not in ("place", "owner", "planned_workers")
    )
    assert "example: python -m trainer" in text


def test_the_flags_are_these() -> None:
    """A new flag is a decision: it must be written here too."""
    assert [field.name for field in dataclasses.fields(TrainConfig)] == [
        *("precision", "channels_last", "fused", "compile", "bucket_mb", "static_graph", "compress_gradients"),
        *("output", "epochs", "global_batch", "max_micro_batch", "virtual_workers", "seed"),
        *("workers", "threads", "device", "log_every"),
        *("checkpoint_seconds", "checkpoint_min_seconds", "checkpoint_overhead", "keep_checkpoints"),
        *("resume_from", "checkpoint_file"),
        *("first_step_seconds", "collective_seconds", "recovery", "snapshot_overhead"),
        *("leave_seconds", "min_step_seconds"),
        *("ledger", "metrics_port", "place", "owner"),
        *("data", "image_size", "augment", "cache_gib", "batch_size", "arch"),
        *("lr", "momentum", "weight_decay", "schedule", "warmup_epochs", "label_smoothing", "mixup", "ema", "ema_every"),
        *("dist_backend", "evaluate_every", "no_tensorboard", "debug_images", "planned_workers"),
    ]
