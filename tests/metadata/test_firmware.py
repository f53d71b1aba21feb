"""Which cloud a machine belongs to, by its firmware's own words; never by asking an address."""

from pathlib import Path

import pytest

from ebb.metadata.firmware import detect

pytestmark = pytest.mark.usefixtures("no_network")

AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"
MACHINES = [
    pytest.param({"sys_vendor": "Amazon EC2", "product_name": "g5.xlarge"}, "aws", id="aws-nitro"),
    pytest.param({"sys_vendor": "Xen", "product_name": "HVM domU", "bios_version": "4.11.amazon"}, "aws", id="aws-xen"),
    pytest.param({"sys_vendor": "Google", "product_name": "Google Compute Engine"}, "gcp", id="gcp"),
    pytest.param(
        {"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine", "chassis_asset_tag": AZURE_TAG},
        "azure",
        id="azure",
    ),
    pytest.param({"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}, "none", id="other-hyper-v"),
    pytest.param({"sys_vendor": "Xen", "product_name": "HVM domU", "bios_version": "4.11"}, "none", id="other-xen"),
    pytest.param({"sys_vendor": "QEMU", "product_name": "Standard PC"}, "none", id="qemu"),
    pytest.param({"sys_vendor": "Google", "product_name": "Pixelbook"}, "none", id="a-laptop"),
    pytest.param({}, "none", id="no-firmware-tables"),
]


def firmware(folder: Path, facts: dict[str, str]) -> Path:
    for name, value in facts.items():
        (folder / name).write_text(value + "\n")
    return folder


@pytest.mark.parametrize(("facts", "expected"), MACHINES)
def test_detection(tmp_path: Path, facts: dict[str, str], expected: str) -> None:
    assert detect(firmware(tmp_path, facts)) == expected


def test_firmware_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    (tmp_path / "sys_vendor").mkdir()
    (tmp_path / "product_name").write_bytes(b"\xff\xfe\x00")
    assert detect(tmp_path) == "none"
    assert detect(tmp_path / "missing") == "none"
