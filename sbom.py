"""`python -m sbom dist`: the bill of materials and the licences of what the wheel in a folder depends on, beside it.

    ebb_train-0.1.0.cdx.json        CycloneDX 1.5: every package of uv.lock that the wheel and its extras bring, with its hashes
    ebb_train-0.1.0.licences.md     the same as a table for people: package, version, licence, what brings it

uv writes the bill from uv.lock, and knows no licences: those are what the packages say of themselves where they are installed, in
this environment or in a folder that `--also` names. A package that is installed nowhere has none in the bill; the table says so.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
EXTRAS = ("train", "data", "controller")
NOT_HERE = "not installed here"
LONGEST = 60  # characters: older packages have the whole text in the place of a name
CLASSIFIER = "License :: OSI Approved :: "

Bill = dict[str, Any]


def exported(*extras: str) -> Bill:
    """The bill of the wheel with these extras, as uv has it."""
    wanted = [word for extra in extras for word in ("--extra", extra)]
    command = [str(Path(sys.executable).parent / "uv"), "export", "--frozen", "--format", "cyclonedx1.5", "--quiet", *wanted]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: Bill = json.loads(done.stdout)
    return found


def licences(folders: Sequence[str] = ()) -> dict[tuple[str, str], str]:
    """(package, version) -> licence, of what is installed here and in the folders."""
    found: dict[tuple[str, str], str] = {}
    for one in metadata.distributions(path=[*folders, *sys.path]):
        said = licence(one.metadata)
        if said and one.name:
            found.setdefault((normal(one.name), one.version), said)
    return found


def licence(about: metadata.PackageMetadata) -> str:
    """The licence as a package states it: an expression, a classifier, or the name in the older field; "" if it states none."""
    listed = about.get_all("Classifier") or []
    named = [one.removeprefix(CLASSIFIER) for one in listed if one.startswith(CLASSIFIER)]
    older = str(about["License"] or "").strip() if "License" in about else ""
    short = older if "\n" not in older and len(older) <= LONGEST else ""
    return str(about["License-Expression"]) if "License-Expression" in about else " OR ".join(named) or short


def normal(name: str) -> str:
    """The one spelling of a package's name (PEP 503)."""
    return name.lower().replace("_", "-").replace(".", "-")


def with_licences(bill: Bill, known: Mapping[tuple[str, str], str]) -> Bill:
    """The bill with the licences that are known."""
    components = [
        {**one, "licenses": [{"license": {"name": said}}]} if (said := known.get((normal(one["name"]), one["version"]))) else one
        for one in bill["components"]
    ]
    return {**bill, "components": components}


def table(bill: Bill, known: Mapping[tuple[str, str], str], brought: Mapping[str, Iterable[str]]) -> str:
    """`brought`: what brings packages ("the wheel", "[train]") -> their names."""
    about = bill["metadata"]["component"]
    lines = [
        f"# Licences of what {about['name']} {about['version']} depends on",
        "",
        "As the packages state them; those that are not installed where this was written state nothing here.",
        "",
        "| package | version | licence | brought by |",
        "|---|---|---|---|",
    ]
    for one in sorted(bill["components"], key=lambda one: (one["name"], one["version"])):
        key = (normal(one["name"]), one["version"])
        by = next((who for who, names in brought.items() if one["name"] in names), "")
        lines.append(f"| {one['name']} | {one['version']} | {known.get(key, NOT_HERE)} | {by} |")
    return "\n".join(lines) + "\n"


def write(folder: Path, also: Sequence[str] = ()) -> list[Path]:
    """Write both files into a folder, and return them."""
    known, whole = licences(also), exported(*EXTRAS)
    brought = {"the wheel": _names(exported())} | {f"[{one}]": _names(exported(one)) for one in EXTRAS}
    about = whole["metadata"]["component"]
    stem = f"{about['name'].replace('-', '_')}-{about['version']}"
    bill, listed = folder / f"{stem}.cdx.json", folder / f"{stem}.licences.md"
    bill.write_text(json.dumps(with_licences(whole, known), indent=1) + "\n")
    listed.write_text(table(whole, known, brought))
    return [bill, listed]


def _names(bill: Bill) -> set[str]:
    return {one["name"] for one in bill["components"]}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m sbom", description="Write the bill of materials of the wheel, and its licences."
    )
    parser.add_argument("folder", type=Path, help="where the wheel is")
    parser.add_argument("--also", action="append", default=[], metavar="DIR", help="a folder with installed packages")
    given = parser.parse_args()
    for path in write(given.folder, given.also):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
