"""The wheel of ebb-train has what its code reads, and the bill of materials beside it names what it depends on."""

import json
import re
import subprocess
import sys
import zipfile
from email.message import Message
from pathlib import Path

import pytest

import sbom

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, and what `make dist` writes beside it."""
    folder = tmp_path_factory.mktemp("dist")
    uv = Path(sys.executable).parent / "uv"
    subprocess.run([uv, "build", "--wheel", "--quiet", "--offline", "--out-dir", folder], cwd=ROOT, check=True)
    sbom.write(folder)
    return folder


def test_every_file_beside_the_code_is_in_the_wheel(dist: Path) -> None:
    [wheel] = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    listed = subprocess.run(["git", "ls-files", "ebb"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert {"ebb/cli/ui/ui.js", "ebb/cli/ui/ui.css", "ebb/client/report/page.css"} <= set(listed)
    assert set(listed) - names == set()


def test_the_bill_names_all_that_the_wheel_depends_on(dist: Path) -> None:
    """Every requirement of its metadata, those of extras too, and what these need in turn, each with a version and a hash."""
    [wheel] = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        [about] = [packed.read(name).decode() for name in packed.namelist() if name.endswith("/METADATA")]
    wanted = {sbom.normal(one) for one in re.findall(r"^Requires-Dist: ([\w.-]+)", about, re.MULTILINE)}
    bill = json.loads((dist / "ebb_train-0.1.0.cdx.json").read_text())
    named = {one["name"] for one in bill["components"]}
    assert {"aiohttp", "torch", "obstore"} <= wanted <= named
    assert {"yarl", "nvidia-nccl-cu13"} <= named - wanted, "what these need in turn"
    assert {"pytest", "pulumi", "moto"} & named == set(), "what a checkout alone needs"
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert bill["metadata"]["component"]["name"] == "ebb-train"
    for one in bill["components"]:
        assert one["purl"] == f"pkg:pypi/{one['name']}@{one['version']}"
        assert all(file["hashes"] for file in one["externalReferences"])


def test_the_licences_are_those_that_the_packages_state(dist: Path) -> None:
    rows = [line.strip("| ").split(" | ") for line in (dist / "ebb_train-0.1.0.licences.md").read_text().splitlines()[6:]]
    listed = {name: (licence, by) for name, _, licence, by in rows}  # of one in two versions the newer, for newer Pythons
    assert listed["aiohttp"] == ("Apache-2.0 AND MIT", "the wheel")
    assert listed["obstore"][1] == "[controller]"
    assert listed["torch"][1] == "[train]"
    unknown = {name for name, (licence, by) in listed.items() if licence == sbom.NOT_HERE and by == "the wheel"}
    assert unknown <= {"colorama"}, "installed on Windows alone"
    bill = json.loads((dist / "ebb_train-0.1.0.cdx.json").read_text())
    stated = {
        (one["name"], one["version"], one["licenses"][0]["license"]["name"]) for one in bill["components"] if "licenses" in one
    }
    assert stated == {(name, version, licence) for name, version, licence, _ in rows if licence != sbom.NOT_HERE}
    assert "aiohttp" in {name for name, *_ in stated}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([("License-Expression", "MIT"), ("License", "other")], "MIT"),
        ([("Classifier", "License :: OSI Approved :: MIT License"), ("License", "x")], "MIT License"),
        ([("License", "BSD-3-Clause")], "BSD-3-Clause"),
        ([("License", "A whole text\nof many lines")], ""),
        ([("License", "x" * 100)], ""),
        ([], ""),
    ],
)
def test_a_licence_is_read_from_the_field_that_names_it(fields: list[tuple[str, str]], said: str) -> None:
    about = Message()
    for key, value in fields:
        about[key] = value
    assert sbom.licence(about) == said  # type: ignore[arg-type]
