"""Many generations of one job: nothing grows, neither in etcd nor in a machine. 500 in the suite, 10,000 as a proof.

make prove-rendezvous does it on all versions of etcd, with all other scenarios.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.elastic.rendezvous.endurance import KEYS, Endured, Sizes, endure


@pytest.mark.e2e
def test_500_generations(version: str, tmp_path: Path) -> None:
    kept(endure(version, tmp_path, 500))


@pytest.mark.proof
def test_10_000_generations(version: str, tmp_path: Path) -> None:
    kept(endure(version, tmp_path, 10_000))


def kept(found: Endured) -> None:
    print(found)
    assert found.grown() == []
    assert found.after.keys == found.before.keys == KEYS


@pytest.mark.parametrize(
    ("what", "much"), [("keys", 4), ("threads", 9), ("descriptors", 26), ("megabytes", 250.0), ("etcd_megabytes", 200.0)]
)
def test_what_grows_is_found(what: str, much: Any) -> None:
    before = Sizes(keys=KEYS, threads=6, descriptors=20, megabytes=200.0, etcd_megabytes=80.0)
    same = Endured(version="3.6", generations=500, seconds=1.0, before=before, after=before)
    assert same.grown() == []
    [words] = replace(same, after=replace(before, **{what: much})).grown()
    assert words.startswith(f"{what}: {much} at the end")
