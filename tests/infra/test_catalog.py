"""Instance types: every one makes sense, and GPUs are found."""

import pytest

from infra import catalog, clouds
from infra.catalog import InstanceType


@pytest.mark.parametrize("one", [one for types in catalog.TYPES.values() for one in types], ids=lambda one: one.name)
def test_every_type_is_whole(one: InstanceType) -> None:
    assert one.cpu > 0
    assert one.memory_gib > 0
    assert one.usd_per_hour > 0
    assert 0 <= one.spot_discount < 1
    assert (one.gpus > 0) == bool(one.gpu_type)


def test_names_are_unique_and_clouds_exist() -> None:
    assert set(catalog.TYPES) <= set(clouds.names())
    for cloud in catalog.TYPES:
        assert len(set(catalog.names(cloud))) == len(catalog.names(cloud))


@pytest.mark.parametrize(
    ("gpu", "name"),
    [pytest.param("T4", "ebb.t4", id="exact"), pytest.param("t4", "ebb.t4", id="case"), pytest.param("H100", None, id="none")],
)
def test_the_smallest_machine_with_a_gpu_is_found(gpu: str, name: str | None) -> None:
    found = catalog.by_gpu("local", gpu)
    assert (found.name if found else None) == name


def test_the_smallest_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    big = InstanceType(name="big", cpu=8, memory_gib=8, usd_per_hour=1, gpu_type="X", gpus=8)
    dear = InstanceType(name="dear", cpu=8, memory_gib=8, usd_per_hour=9, gpu_type="X", gpus=1)
    cheap = InstanceType(name="cheap", cpu=8, memory_gib=8, usd_per_hour=2, gpu_type="X", gpus=1)
    monkeypatch.setattr(catalog, "TYPES", {"local": (big, dear, cheap)})
    assert catalog.by_gpu("local", "X") == cheap


def test_a_cloud_without_types_has_none() -> None:
    assert (catalog.names("mars"), catalog.gpu_types("mars"), catalog.by_name("mars", "x")) == ((), (), None)
