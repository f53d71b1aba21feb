"""Which programs `up` brings: an older etcd only when somebody asked for it, and then for good."""

from pathlib import Path
from typing import Any

import pytest

from devcluster import tools
from devcluster.images import prepared
from devcluster.images.build import LEGACY_ETCD
from devcluster.images.prepared import ImageSet
from devcluster.up import _programs

BUILT = {
    "never asked for": (False, None, False),
    "asked for now": (True, None, True),
    "asked for before": (False, {LEGACY_ETCD: "localhost/ebb/etcd-legacy:1"}, True),
    "others were built before": (False, {"etcd": "localhost/ebb/etcd:1"}, False),
}


@pytest.mark.parametrize(("asked", "last", "there"), BUILT.values(), ids=BUILT)
async def test_the_older_etcd_is_built_when_it_is_asked_for(
    asked: bool, last: dict[str, str] | None, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def programs() -> dict[str, Path]:
        return {"etcd": Path("/tools/etcd36/etcd")}

    async def ensure(name: str) -> Path:
        return Path("/tools") / name

    def current(home: Path) -> ImageSet | None:
        return None if last is None else ImageSet(folder=home, references=last)

    for module, name, value in ((tools, "programs", programs), (tools, "ensure", ensure), (prepared, "current", current)):
        monkeypatch.setattr(module, name, value)
    wanted: dict[str, Any] = {"etcd": Path("/tools/etcd36/etcd")}
    if there:
        wanted[LEGACY_ETCD] = Path("/tools") / tools.LEGACY_ETCD / "etcd"
    assert await _programs(legacy_etcd=asked) == wanted
