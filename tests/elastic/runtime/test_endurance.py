"""Many changes of one job in the same processes: nothing grows, neither in them nor in etcd. 60 in the suite, 1,000 as a proof.

make prove-rendezvous does it on all versions of etcd.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.elastic.rendezvous.endurance import KEYS
from tests.elastic.runtime.endurance import LOST_EACH, Endured, Held, Sizes, endure


@pytest.mark.e2e
def test_60_changes(tmp_path: Path) -> None:
    kept(endure("3.6", tmp_path, 60))


@pytest.mark.proof
def test_1000_changes(tmp_path: Path) -> None:
    kept(endure("3.6", tmp_path, 1000))


def kept(found: Endured) -> None:
    print(found)
    assert found.grown() == []
    assert found.lost == found.changes // LOST_EACH


HELD = Held(threads=6, descriptors=20, megabytes=200.0)
SIZES = Sizes(worker=HELD, launchers=HELD, keys=KEYS)
SAME = Endured(version="3.6", changes=60, lost=6, same_process=True, seconds=1.0, before=SIZES, after=SIZES)


@pytest.mark.parametrize("whose", ["worker", "launchers"])
@pytest.mark.parametrize(("what", "much"), [("threads", 9), ("descriptors", 26), ("megabytes", 250.0)])
def test_what_grows_is_found(whose: str, what: str, much: Any) -> None:
    assert SAME.grown() == []
    grown = replace(HELD, **{what: much})
    after = replace(SIZES, worker=grown) if whose == "worker" else replace(SIZES, launchers=grown)
    [words] = replace(SAME, after=after).grown()
    assert words.startswith(f"{whose}: {much} {what} at the end")


def test_more_keys_and_another_process_are_found() -> None:
    assert replace(SAME, after=replace(SIZES, keys=KEYS + 1)).grown() == [f"keys: {KEYS + 1} at the end, {KEYS} allowed"]
    assert replace(SAME, same_process=False).grown() == ["the first worker's process has ended"]
