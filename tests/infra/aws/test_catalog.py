"""Instance types of AWS: their AMIs, network cards, and those that are refused."""

import pytest

from infra import catalog
from infra.clouds.aws.catalog import AMI_CPU, AMI_GPU, TYPES, AwsInstance

AWS = [one for one in catalog.types("aws", refused=True) if isinstance(one, AwsInstance)]


@pytest.mark.parametrize("one", AWS, ids=lambda one: one.name)
def test_aws_types_have_the_ami_of_their_gpus_and_a_card_for_each_efa_interface(one: AwsInstance) -> None:
    assert one.ami_type == (AMI_GPU if one.gpus else AMI_CPU)
    assert one.network_cards >= max(1, one.efa)


def test_a_refused_type_is_known_but_not_offered() -> None:
    assert catalog.by_gpu("aws", "K80") == catalog.by_name("aws", "p2.xlarge")
    assert "K80" not in catalog.gpu_types("aws")
    assert "p2.xlarge" not in catalog.names("aws")


def test_a_line_of_the_catalog_keeps_its_facts() -> None:
    found = {one.name: one for one in TYPES}["p4d.24xlarge"]
    assert (found.cpu, found.memory_gib, found.gpus, found.gpu_type, found.efa, found.network_cards) == (
        96,
        1152,
        8,
        "A100",
        4,
        4,
    )
    assert (found.usd_per_hour, found.spot_discount, found.max_pods, found.local_disk_gib) == (21.957642, 0.6, 737, 8000)
