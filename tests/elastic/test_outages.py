"""--recovery memory beside faults that end no process: some for 12 s, with leases of 4 s for 10; as proofs all of them for 30 and
60 s, with the default lease (make prove-outages).
"""

from pathlib import Path

import pytest

from benchmarks.controller.processes import BenchmarkError
from benchmarks.recovery.namespaces import Network
from tests.elastic.outages import FULL, IN_NETWORKS, OUTAGES, SHORT, Lengths, play


@pytest.mark.e2e
@pytest.mark.parametrize("outage", ["still", "cut_off"])
def test_a_short_one(outage: str, data: Path, tmp_path: Path) -> None:
    check(outage, data, tmp_path, SHORT)


@pytest.mark.proof
@pytest.mark.parametrize("outage", OUTAGES)
def test_a_long_one(outage: str, data: Path, tmp_path: Path) -> None:
    check(outage, data, tmp_path, FULL)


def check(outage: str, data: Path, folder: Path, lengths: Lengths) -> None:
    if outage in IN_NETWORKS:
        skip_without_networks()
    try:
        print(play(outage, folder, data, lengths))
    finally:
        print(*(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in sorted((folder / "output").glob("*.log"))), sep="\n")


def skip_without_networks() -> None:
    try:
        with Network() as network:
            network.cut(network.attach(), 0)
    except BenchmarkError as error:
        pytest.skip(str(error))
