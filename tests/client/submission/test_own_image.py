"""Jobs in images that are not the stack's: what their pods get, what they may ask for, and that it can be read back."""

from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from ebb.api.platform import Platform
from ebb.api.platform import parse as read_platform
from ebb.client.errors import BadRequest
from ebb.client.staging.clone import settings_of
from ebb.client.staging.code import packed
from ebb.client.staging.delivery import place_of
from ebb.client.submission import own_image
from ebb.client.submission.fit import find_fit
from ebb.client.submission.jobfile import request_of
from ebb.client.submission.manifest import manifest
from ebb.client.submission.request import Request, check, command_of
from ebb.client.submission.submit import prepare
from tests.cli.world import NS, platform_map

PLATFORM = replace(read_platform(platform_map()["data"]), launcher_image="localhost/ebb/controller:1")


def asked(command: str = "python train.py", **flags: Any) -> Request:
    request = request_of({}, {"name": "mine", **flags}, command.split(), "abcd")
    check(request)
    return request


def body_of(request: Request, platform: Platform = PLATFORM) -> dict[str, Any]:
    return manifest(request, find_fit(request, platform), platform, NS)


def pod_of(request: Request, platform: Platform = PLATFORM) -> dict[str, Any]:
    pod: dict[str, Any] = body_of(request, platform)["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    return pod


def test_the_launcher_is_brought_and_replaces_the_entrypoint() -> None:
    pod = pod_of(asked(image="nvcr.io/nvidia/pytorch:25.01-py3"))
    (bringing,), (worker,) = pod["initContainers"], pod["containers"]
    assert bringing["image"] == "localhost/ebb/controller:1"
    assert bringing["command"] == ["cp", "-r", "/opt/ebb/portable/.", "/ebb/runtime"]
    assert worker["command"] == ["/ebb/runtime/busybox", "sh", "/ebb/runtime/start", "python3 python"]
    assert worker["args"] == ["train.py"]
    assert {"name": "ebb-runtime", "mountPath": "/ebb/runtime", "readOnly": True} in worker["volumeMounts"]
    assert {"name": "ebb-runtime", "emptyDir": {}} in pod["volumes"]
    assert "PYTHONPATH" not in [each["name"] for each in worker["env"]]  # the image's own stays


def test_nothing_is_mounted_in_what_is_mounted_read_only(tmp_path: Path) -> None:
    """No runtime can make the folder for it there: each job that brought a launcher and small code failed to start."""
    (tmp_path / "train.py").touch()
    request = asked(image="mine:1")
    code = place_of(packed(tmp_path), request.name, PLATFORM)
    body = manifest(request, find_fit(request, PLATFORM), PLATFORM, NS, code)
    (worker,) = body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    mounts = {PurePosixPath(each["mountPath"]): each.get("readOnly", False) for each in worker["volumeMounts"]}
    assert {PurePosixPath("/ebb/runtime"), PurePosixPath("/ebb/code")} <= mounts.keys()
    assert not [path for path in mounts if any(mounts.get(parent) for parent in path.parents)]


@pytest.mark.parametrize(
    ("image", "platform"),
    [
        pytest.param(None, PLATFORM, id="the stack's trainer"),
        pytest.param("localhost/ebb/trainer:older", PLATFORM, id="an older build of it"),
        pytest.param("mine:1", replace(PLATFORM, launcher_image=""), id="a stack of an older Ebb"),
    ],
)
def test_an_image_that_has_the_launcher_starts_as_ever(image: str | None, platform: Platform) -> None:
    pod = pod_of(asked(image=image), platform)
    assert "initContainers" not in pod
    assert "command" not in pod["containers"][0]
    assert "ebb-runtime" not in str(pod)


def test_it_meets_at_our_rendezvous_where_others_images_meet_at_torchs() -> None:
    legacy = replace(PLATFORM, legacy_etcd_endpoint="etcd-legacy:2379")
    assert body_of(asked(image="mine:1"), legacy)["spec"]["rdzvBackend"] == "etcd3"
    assert body_of(asked(image="mine:1"), replace(legacy, launcher_image=""))["spec"]["rdzvBackend"] == "etcd"


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("python train.py", "python3 python"),
        ("-m train", "python3 python"),
        ("torchrun train.py", "python3 python"),
        ("/opt/conda/bin/python train.py", "/opt/conda/bin/python"),
        ("python3.12 -m train", "python3.12"),
        ("python_tools.py", "python3 python"),
    ],
)
def test_the_command_may_name_the_images_python(command: str, names: str) -> None:
    request = asked(command, image="mine:1")
    assert pod_of(request)["containers"][0]["command"][-1] == names
    assert request_of({}, {"name": "mine", "image": "mine:1"}, command_of(request).split(" -- ")[1].split(), "x") == request


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (
            "pytorch/pytorch:2.8.0-cuda12.6",
            ["pytorch/pytorch:2.8.0-cuda12.6, by its name: torch 2.8.0 is older than 2.9, so run.dist"],
        ),
        (
            "pytorch/pytorch:1.13.1-cuda11.6",
            ["pytorch/pytorch:1.13.1-cuda11.6, by its name: the image's torch is 1.13.1, and Ebb's"],
        ),
        ("pytorch/pytorch:2.9.1-cuda12.8", []),
        (
            "mine:1",
            ["Which torch is in mine:1 is seen when it runs: if that is older than torch 2.9, the first line of `ebb logs mine`"],
        ),
        ("localhost/ebb/trainer:older", []),
        (None, []),
    ],
)
def test_what_the_images_torch_cannot_do_is_said_at_submit(image: str | None, said: list[str]) -> None:
    notes: list[str] = []
    ebb: Any = SimpleNamespace(platform=PLATFORM, namespace=NS, owner="")
    prepare(ebb, asked(image=image), note=notes.append)
    assert [note[: len(begin)] for note, begin in zip(notes, said, strict=True)] == said


USUAL = {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000}


@pytest.mark.parametrize(
    ("who", "user", "added"),
    [
        (None, USUAL, False),
        ("1234", {**USUAL, "runAsUser": 1234}, False),
        ("1234:100", {**USUAL, "runAsUser": 1234, "runAsGroup": 100}, False),
        ("root", {"runAsUser": 0, "runAsGroup": 0}, True),
        ("image", {}, True),
    ],
)
def test_any_user_is_one_option(who: str | None, user: dict[str, Any], added: bool) -> None:
    flags: dict[str, Any] = {"image": "mine:1", "run-as": who}
    pod = pod_of(asked(**flags))
    found = {key: value for key, value in pod["securityContext"].items() if key.startswith("runAs")}
    assert found == user
    worker = pod["containers"][0]["securityContext"]
    assert worker["capabilities"]["drop"] == ["ALL"]
    assert ("add" in worker["capabilities"]) == added
    assert worker.get("runAsGroup") == (1000 if who == "image" else None), "containerd takes no group of a pod without a user"
    bringing = pod["initContainers"][0]["securityContext"]
    assert {key: bringing[key] for key in USUAL} == USUAL  # whoever the worker is
    assert own_image.run_as_of(pod) == who


@pytest.mark.parametrize("who", ["", "bob", "0", "-1", "1:0", "1:", ":1", "1:2:3", "4294967296"])
def test_nobody_else_is_let_in(who: str) -> None:
    with pytest.raises(BadRequest, match=r"run-as '.*' is nobody: use a user's number, as in --run-as 1234 or 1234:100, 'root'"):
        asked(image="mine:1", **{"run-as": who})


def test_the_root_file_system_is_writable_on_request() -> None:
    def security(**flags: Any) -> Any:
        return pod_of(asked(image="mine:1", **flags))["containers"][0]["securityContext"]

    assert security()["readOnlyRootFilesystem"] is True
    assert security(**{"writable-root": True})["readOnlyRootFilesystem"] is False
    with pytest.raises(BadRequest, match="writable-root 'yes' is neither true nor false"):
        asked(**{"writable-root": "yes"})


def test_a_job_file_says_what_the_flags_say() -> None:
    file = {"image": "mine:1", "run-as": 1234, "writable-root": True, "command": "/usr/bin/python3.9 train.py"}
    request = request_of(file, {"name": "mine"}, (), "x")
    assert (request.run_as, request.writable_root, request.interpreter) == ("1234", True, "/usr/bin/python3.9")
    assert "--run-as 1234 --writable-root" in command_of(request)


def test_what_was_asked_for_is_read_back_for_a_clone() -> None:
    request = asked("python3.12 train.py", image="mine:1", env=["LR=1"], **{"run-as": "root", "writable-root": True})
    found = settings_of(body_of(request), PLATFORM)
    assert {key: found[key] for key in ("image", "run-as", "writable-root", "command", "env")} == {
        "image": "mine:1",
        "run-as": "root",
        "writable-root": True,
        "command": ["python3.12", "train.py"],
        "env": {"LR": "1"},
    }
