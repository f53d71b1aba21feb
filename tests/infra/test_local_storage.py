"""What the local stack asks for: data and output are folders of one share, whose root has a claim too."""

from types import SimpleNamespace
from typing import Any, cast

from infra.clouds.local import Local, Settings
from infra.config import Stack
from tests.infra.declared import declared
from tests.workloads.test_storage import a_cluster

BOX = {"schema": "1", "storageClass": "ebb-shared", "environmentVolume": "ebb-environment"}


def volumes() -> dict[str, Any]:
    """Name -> (claim, mount path, folder of the box, access mode) of all that `storage` returns."""
    stack = SimpleNamespace(teams={}, storage=SimpleNamespace(data_gib=5, output_gib=2))

    def ask() -> dict[str, Any]:
        made = Local(cast(Stack, stack), Settings(kubeconfig="k")).storage(a_cluster(), [])
        every = (*made.jobs, made.root, made.etcd)
        return {one.name: (one.claim, one.mount_path, dict(one.annotations), one.size_gib) for one in every}

    found: dict[str, Any] = declared(ask, answers={"kubernetes:core/v1:ConfigMap": lambda _name, _inputs: {"data": BOX}}).returned
    return found


def folder(name: str) -> dict[str, str]:
    return {"box.ebb.dev/folder": name}


def test_the_root_shows_data_and_output_in_it() -> None:
    assert volumes() == {
        "data": ("ebb-data", "/mnt/data", folder("shared/data"), 5),
        "output": ("ebb-output", "/mnt/output", folder("shared/output"), 2),
        "environment": ("ebb-environment", "/opt/ebb/site-packages", {}, 1),
        "efs": ("efs-claim", "/mnt/efs", folder("shared"), 7),
        "etcd-data": ("etcd-data", "/var/lib/etcd", {}, 2),
    }
