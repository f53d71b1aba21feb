"""Machine types as data: what is wrong in a file is said with the file, the type and the key."""

from pathlib import Path

import pytest

from infra import machine_types
from infra.config import ConfigError
from workloads.cluster import InstanceType

LINE = {"name": "a.large", "cpu": "4", "memoryGiB": "16", "usdPerHour": "0.5"}


def written(folder: Path, *lines: str, head: str = 'source: a list\npricesOn: "2026-11-24"\ntypes:\n') -> Path:
    path = folder / "machines.yaml"
    path.write_text(head + "".join(f"  - {line}\n" for line in lines))
    return path


def line(**changes: str) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in {**LINE, **changes}.items() if value) + "}"


def made(one: machine_types.MachineLine) -> InstanceType:
    return InstanceType(name=one.name, usd_per_hour=one.usd_per_hour, **one.facts)


def test_a_line_is_a_machine(tmp_path: Path) -> None:
    path = written(tmp_path, line(gpu="T4", gpus="2"), line(name="b.large", usdPerHour="1"))
    assert machine_types.read(path, machine_types.MachineLine, made) == (
        InstanceType(name="a.large", cpu=4, memory_gib=16, gpu_type="T4", gpus=2, usd_per_hour=0.5),
        InstanceType(name="b.large", cpu=4, memory_gib=16, usd_per_hour=1.0),
    )


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([line(memory="16")], "a.large.memory: "),
        ([line(cpu="")], "a.large.cpu: "),
        ([line(cpu="'4'")], "a.large.cpu: found '4'; allowed is a whole number"),
        ([line(cpu="0")], "a.large.cpu: found 0; allowed is 1 or more"),
        ([line(usdPerHour="cheap")], "a.large.usdPerHour: found 'cheap'"),
        ([line(name="")], "types[0].name: "),
        ([line(gpu="T5", gpus="1")], "a.large.gpu: found 'T5'"),
        ([line(gpu="T4")], "a.large.gpus: found 0 with gpu 'T4'"),
        ([line(gpus="1")], "a.large.gpus: found 1 with gpu None"),
        ([line(), line()], "a.large is there twice"),
        ([line(spotDiscount="0.6")], "a.large.spotDiscount: "),  # what is computed
        (["a text"], "types[0]: found 'a text'; allowed is a section with keys"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, lines: list[str], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        machine_types.read(written(tmp_path, *lines), machine_types.MachineLine, made)
    assert told in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "machines.yaml"))


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        machine_types.read(written(tmp_path, line(cpu="0"), line(name="b.large", cpu="0")), machine_types.MachineLine, made)
    assert "a.large.cpu" in str(error.value)
    assert "b.large.cpu" in str(error.value)


@pytest.mark.parametrize("head", ["types: {}\n", "- a\n", "types:\n  - {\n", 'source: a\npricesOn: ""\nmore: 1\ntypes:\n'])
def test_a_file_of_another_form_is_refused(tmp_path: Path, head: str) -> None:
    with pytest.raises(ConfigError, match=r"machines\.yaml: "):
        machine_types.read(written(tmp_path, head=head), machine_types.MachineLine, made)
