"""Instance types: every one makes sense, and GPUs are found; builds of torch know their GPUs."""

import re
from pathlib import Path

import pytest

from infra import catalog, clouds
from infra.config.model import Trainer
from tests.infra.cases import CASES
from workloads.cluster import InstanceType

WITH_TYPES = [cloud for cloud in clouds.names() if catalog.names(cloud)]
EVERY = [(cloud, one) for cloud in clouds.names() for one in catalog.types(cloud, refused=True)]


@pytest.mark.parametrize("one", [one for _, one in EVERY], ids=[f"{cloud}-{one.name}" for cloud, one in EVERY])
def test_every_type_is_whole(one: InstanceType) -> None:
    assert one.cpu > 0
    assert one.memory_gib > 0
    assert one.usd_per_hour > 0
    assert 0 <= one.spot_discount < 1
    assert (one.gpus > 0) == bool(one.gpu_type)
    assert not one.gpu_type or one.gpu_type in catalog.GPUS


@pytest.mark.parametrize("cloud", WITH_TYPES)
def test_names_are_unique_and_gpu_types_differ_in_every_spelling(cloud: str) -> None:
    assert len(set(catalog.names(cloud))) == len(catalog.names(cloud)) > 0
    assert len({gpu.lower() for gpu in catalog.gpu_types(cloud)}) == len(catalog.gpu_types(cloud)) > 0


@pytest.mark.parametrize(
    ("cloud", "gpu", "name"),
    [
        pytest.param("local", "T4", "ebb.t4", id="exact"),
        pytest.param("local", "t4", "ebb.t4", id="case"),
        pytest.param("local", "H100", None, id="none"),
        *((case.cloud, gpu, name) for case in CASES for gpu, name in case.smallest.items()),
    ],
)
def test_the_smallest_machine_with_a_gpu_is_found(cloud: str, gpu: str, name: str | None) -> None:
    found = catalog.by_gpu(cloud, gpu)
    assert (found.name if found else None) == name


def test_the_smallest_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    big = InstanceType(name="big", cpu=8, memory_gib=8, usd_per_hour=1, gpu_type="X", gpus=8)
    dear = InstanceType(name="dear", cpu=8, memory_gib=8, usd_per_hour=9, gpu_type="X", gpus=1)
    cheap = InstanceType(name="cheap", cpu=8, memory_gib=8, usd_per_hour=2, gpu_type="X", gpus=1)
    monkeypatch.setattr(clouds.named("local"), "TYPES", (big, dear, cheap))
    assert catalog.by_gpu("local", "X") == cheap


@pytest.mark.parametrize("cloud", WITH_TYPES)
def test_a_gpu_that_a_cloud_lacks_has_a_nearest_one(cloud: str) -> None:
    """Itself where it is there; the code that runs on it decides, then its memory."""
    for name in catalog.GPUS:
        nearest = catalog.nearest_gpu(cloud, name.lower())
        assert nearest in catalog.gpu_types(cloud)
        assert name not in catalog.gpu_types(cloud) or catalog.GPUS[str(nearest)].capability == catalog.GPUS[name].capability
    assert catalog.nearest_gpu(cloud, "TPU") is None


def test_a_cloud_without_types_has_none() -> None:
    assert (catalog.names("mars"), catalog.gpu_types("mars"), catalog.by_name("mars", "x")) == ((), (), None)


BOTH = {
    *("T4", "A100", "A100-80GB", "A30", "A10", "A10G", "A40", "RTX-A6000", "RTX-3090"),
    *("L4", "L40", "L40S", "RTX-4090", "RTX-6000-ADA", "H100", "H100-NVL", "H200"),
}


@pytest.mark.parametrize(
    ("torch", "cuda", "gpus"),
    [
        pytest.param("2.13.0", "13.0", {*BOTH, "B200", "B300", "RTX-PRO-6000", "RTX-5090"}, id="PyPI"),
        pytest.param("2.13.0", "12.6", {*BOTH, "P100", "V100", "V100-32GB"}, id="CUDA 12"),
    ],
)  # fmt: skip
def test_a_build_of_torch_runs_on_the_gpus_that_it_has_code_for(torch: str, cuda: str, gpus: set[str]) -> None:
    build = catalog.torch_build(torch, cuda)
    assert build is not None
    assert {name for name, gpu in catalog.GPUS.items() if build.runs_on(gpu)} == gpus


def test_the_default_trainer_is_the_one_that_the_image_is_built_with() -> None:
    written = (Path(__file__).parent.parent.parent / "trainer" / "requirements.txt").read_text()
    pinned = dict(re.findall(r"^(torch|torchvision)==(.+)$", written, re.MULTILINE))
    usual = Trainer()
    assert pinned == {"torch": usual.torch, "torchvision": usual.torchvision}
    assert catalog.torch_build(usual.torch, usual.cuda) is not None


def test_the_table_says_of_this_torch_what_its_wheel_says() -> None:
    torch = pytest.importorskip("torch")
    flags = torch._C._cuda_getArchFlags() if torch.version.cuda else None
    if not flags:
        pytest.skip("this torch was built without CUDA")
    build = catalog.torch_build(torch.__version__.split("+")[0], torch.version.cuda)
    assert build is not None
    assert [f"sm_{one.replace('.', '')}" for one in build.architectures] == flags.split()
