"""The flags: the original example's mean the same, what contradicts itself is refused with the fix."""

import dataclasses
from pathlib import Path

import pytest

from ebb.elastic.data.augment import AUGMENTATIONS as OF_THE_DATA
from ebb.elastic.runtime.config import ConfigError
from ebb.elastic.speed import SpeedOptions
from tests.trainer.images.test_batch import manifest
from trainer.images.options import AUGMENTATIONS, VisionConfig, fixed, parse


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for part in ("train", "val"):
        (tmp_path / "data" / part).mkdir(parents=True)
    return tmp_path / "data"


def given(data: Path, *arguments: str, **environment: str) -> VisionConfig:
    return parse([*arguments], {"EBB_OUTPUT_DIR": str(data.parent / "out"), **environment})


def test_the_original_examples_command_line(data: Path) -> None:
    """Part of the seeds' own job file, with every flag that its main.py has."""
    config = given(
        data, "--arch", "resnet50", "-j", "4", "--epochs", "20", "-b", "64", "--lr", "0.2", "--momentum", "0.8", "--wd", "0.001",
        "-p", "25", "--dist-backend", "nccl", "--checkpoint-file", "/mnt/efs/output/c.pth", str(data),
    )  # fmt: skip
    assert (config.data, config.arch, config.workers, config.epochs) == (data, "resnet50", 4, 20)
    assert (config.batch_size, config.lr, config.momentum, config.weight_decay) == (64, 0.2, 0.8, 0.001)
    assert (config.log_every, config.dist_backend, config.checkpoint_file) == (25, "nccl", "/mnt/efs/output/c.pth")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("-a", "alexnet"), ("--arch", "alexnet")),
        (("-b", "8"), ("--batch-size", "8")),
        (("-j", "3"), ("--workers", "3")),
        (("--learning-rate", "0.3"), ("--lr", "0.3")),
        (("--wd", "0.3"), ("--weight-decay", "0.3")),
        (("--print-freq", "3"), ("--log-every", "3")),
        (("-p", "3"), ("--print-freq", "3")),
    ],
    ids=lambda flags: flags[0],
)
def test_both_names_of_a_flag(data: Path, one: tuple[str, str], other: tuple[str, str]) -> None:
    assert given(data, *one, str(data)) == given(data, *other, "--data", str(data)) != given(data, str(data))


def test_defaults_are_the_original_examples(data: Path) -> None:
    config, why = fixed(given(data, str(data), WORLD_SIZE="4"))
    assert (config.arch, config.epochs, config.lr, config.momentum, config.weight_decay, config.log_every) == (
        "resnet18", 90, 0.1, 0.9, 1e-4, 10,
    )  # fmt: skip
    assert (config.schedule, config.warmup_epochs, config.label_smoothing) == ("step", 0.0, 0.0)
    assert (config.global_batch, config.max_micro_batch) == (128, 32)
    assert why == "global batch 128: 32 for each of 4 processes"


def test_the_global_batch_follows_the_plan_not_who_is_there(data: Path) -> None:
    config, _ = fixed(given(data, "-b", "16", str(data), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", EBB_PLANNED_WORKERS="8"))
    assert (config.global_batch, config.max_micro_batch) == (256, 16)


def test_a_job_that_goes_on_from_another_ones_checkpoint_keeps_its_global_batch(data: Path) -> None:
    """On other machines too, until it has checkpoints of its own (`ebb submit --from`)."""
    for job, global_batch in (("first", 512), ("out", 256)):
        folder = data.parent / job / "checkpoints"
        folder.mkdir(parents=True)
        (folder / "g00001-s00000010-r0.json").write_bytes(manifest(1, global_batch))
        config, why = fixed(given(data, str(data), WORLD_SIZE="2", EBB_RESUME_FROM=str(data.parent / "first")))
        assert (config.global_batch, why) == (global_batch, f"global batch {global_batch}, as at the first start")


def test_the_flags_about_speed(data: Path) -> None:
    config = given(
        data, "--precision", "bf16", "--channels-last", "on", "--fused", "off", "--compile", "--bucket-mb", "50",
        "--static-graph", "--compress-gradients", "bf16", str(data),
    )  # fmt: skip
    wanted = SpeedOptions(
        precision="bf16",
        channels_last="on",
        fused="off",
        compile=True,
        bucket_mb=50.0,
        static_graph=True,
        compress_gradients="bf16",
    )
    names = [field.name for field in dataclasses.fields(SpeedOptions)]
    assert {name: getattr(config, name) for name in names} == dataclasses.asdict(wanted)


def test_the_augmentations_are_those_of_the_data() -> None:
    assert AUGMENTATIONS == OF_THE_DATA


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param([], "--data is missing: name the folder as the last argument", id="no-data"),
        pytest.param(["--data", "DATA", "DATA"], "the data folder is given twice", id="twice"),
        pytest.param(["/nowhere"], "--data /nowhere: there is no folder /nowhere/train.*python -m trainer.digits", id="nowhere"),
        pytest.param(["-b", "-1", "DATA"], "--batch-size is -1; it must be at least 0", id="low"),
        pytest.param(["--schedule", "linear", "DATA"], "--schedule is 'linear'; allowed: cosine, step, constant", id="schedule"),
        pytest.param(["--precision", "int8", "DATA"], "--precision is 'int8'; allowed: auto, fp32", id="precision"),
        pytest.param(["--dist-backend", "mpi", "DATA"], "--dist-backend is 'mpi'; allowed: auto, nccl, gloo", id="backend"),
        pytest.param(["--label-smoothing", "1", "DATA"], "--label-smoothing is 1.0; it must be less than 1", id="smoothing"),
        pytest.param(["--ema", "1.5", "DATA"], "--ema is 1.5; it must be less than 1", id="ema"),
        pytest.param(["--epoch", "3", "DATA"], "unrecognized arguments: --epoch", id="no-abbreviations"),
        pytest.param(
            ["-b", "many", "DATA"], "argument -b/--batch-size|argument --batch-size/-b: invalid int value: 'many'", id="type"
        ),
    ],
)
def test_what_is_refused(data: Path, arguments: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        given(data, *[str(data) if each == "DATA" else each for each in arguments])


def test_a_plan_that_is_no_number_is_refused(data: Path) -> None:
    with pytest.raises(ConfigError, match="EBB_PLANNED_WORKERS is 'four'; it must be a whole number"):
        given(data, str(data), EBB_PLANNED_WORKERS="four")
