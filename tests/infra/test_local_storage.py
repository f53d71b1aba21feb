"""What the local stack asks for: data and output are folders of one share, whose root has a claim too."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from infra.clouds.local import Local, Settings
from infra.config import Stack
from tests.infra.declared import declared
from tests.workloads.test_storage import a_cluster


def volumes(environment: str) -> dict[str, Any]:
    """Name -> (claim, mount path, folder of the box, access mode) of all that `storage` returns."""
    facts = {
        **{"controllerImage": "c", "trainerImage": "t", "etcdImage": "e"},
        **{"storageClass": "ebb-shared", "environmentVolume": environment},
    }
    settings = Settings.model_validate({"kubeconfig": "k", "facts": facts})
    stack = SimpleNamespace(storage=SimpleNamespace(data_gib=5, output_gib=2))

    def ask() -> dict[str, Any]:
        made = Local(cast(Stack, stack), settings).storage(a_cluster(), [])
        every = (*made.jobs, made.root, made.etcd)
        return {one.name: (one.claim, one.mount_path, dict(one.annotations), one.size_gib) for one in every}

    found: dict[str, Any] = declared(ask).returned
    return found


def folder(name: str) -> dict[str, str]:
    return {"box.ebb.dev/folder": name}


def test_the_root_shows_data_and_output_in_it() -> None:
    assert volumes(environment="") == {
        "data": ("ebb-data", "/mnt/data", folder("shared/data"), 5),
        "output": ("ebb-output", "/mnt/output", folder("shared/output"), 2),
        "efs": ("efs-claim", "/mnt/efs", folder("shared"), 7),
        "etcd-data": ("etcd-data", "/var/lib/etcd", {}, 2),
    }


@pytest.mark.parametrize(("environment", "there"), [("ebb-environment", True), ("", False)])
def test_the_environment_is_a_volume_of_the_box_alone(environment: str, there: bool) -> None:
    assert ("environment" in volumes(environment)) is there
