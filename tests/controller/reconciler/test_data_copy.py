"""A job whose data is in a bucket: one pod copies it, and only then does the job ask for machines."""

from dataclasses import replace
from typing import Any

import pytest

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.api.parts import Data
from ebb.api.platform import Copies, Platform, Volume
from ebb.controller.reconciler.data_copy import mark
from ebb.controller.reconciler.types import CreatePod, DeletePod, Plan
from tests.builders import NOW, make_job, make_platform
from tests.looks import again, look, running
from tests.pod_security import violations

Object = dict[str, Any]
URL, PATH = "s3://imagenet/train", "/mnt/data/imagenet-train-1a2b3c4d"
DATA = {"url": URL, "path": PATH}
SECRET = {"name": "AWS_SECRET_ACCESS_KEY", "valueFrom": {"secretKeyRef": {"name": "ebb-secret-aws", "key": "value"}}}


def platform(**changes: Any) -> Platform:
    volumes = (
        Volume(name="data", claim="ebb-data", mount_path="/mnt/data", read_only=False),
        Volume(name="sets", claim="ebb-sets", mount_path="/mnt/sets", read_only=True),
    )
    copies = Copies(image="ebb/controller:1", selector={"ebb.dev/node-group": "manager"})
    return replace(make_platform(volumes=volumes), **{"copies": copies, **changes})


def job(**spec: Any) -> Object:
    env = [{"name": "EPOCHS", "value": "3"}, {"name": "AWS_REGION", "value": "eu-west-1"}, SECRET]
    return make_job(container={"env": env}, **{"data": DATA, **spec})


def copying(code: int | None = None, said: str = "", finished: float = NOW, data: Object = DATA, **status: Any) -> Object:
    """The pod that copies: running, or ended with a code and a log."""
    phase = "Running" if code is None else "Succeeded" if code == 0 else "Failed"
    state = (
        {"terminated": {"exitCode": code, "message": said, "finishedAt": stamp(finished)}}
        if code is not None
        else {"running": {}}
    )
    return {
        "metadata": {"name": "digits-copy", "uid": "copy-uid", "labels": {names.LABEL_COPY: mark(Data(**data))}},
        "spec": {},
        "status": {"phase": phase, "containerStatuses": [{"name": "copy", "state": state}], **status},
    }


def created(plan: Plan) -> list[Object]:
    return [action.body for action in plan.actions if isinstance(action, CreatePod)]


def deleted(plan: Plan) -> list[str]:
    return [action.name for action in plan.actions if isinstance(action, DeletePod)]


def waits(plan: Plan) -> tuple[str, str]:
    condition = plan.status.condition(names.RUNNING)
    assert condition is not None
    return condition.reason, condition.message or ""


def test_the_copy_comes_first_and_no_machine_is_asked_for() -> None:
    first = look(job(), platform=platform())
    (pod,) = created(first)
    assert pod["metadata"]["name"] == "digits-copy"
    assert names.LABEL_INDEX not in pod["metadata"]["labels"], "it is no worker"
    assert pod["metadata"]["ownerReferences"][0]["uid"] == job()["metadata"]["uid"]
    assert (first.status.state, waits(first)[0], first.status.placement) == ("Waiting", names.WAITING_FOR_DATA, None)
    meanwhile = look(again(job(), first), platform=platform(), copies=(copying(),), now=NOW + 9999)
    assert (meanwhile.actions, meanwhile.status.placement) == ((), None)
    assert waits(meanwhile)[1] == f"{URL} is copied to {PATH}: machines are asked for when it is whole."
    assert meanwhile.status.seconds_lost == 0


def test_the_pod_has_the_credentials_of_the_training_and_nothing_else_of_it() -> None:
    (pod,) = created(look(job(), platform=platform()))
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "ebb/controller:1"
    assert container["command"][-4:] == ["-m", "ebb.buckets", URL, PATH]
    assert container["env"] == [{"name": "AWS_REGION", "value": "eu-west-1"}, SECRET]
    assert container["volumeMounts"] == [{"name": "data", "mountPath": "/mnt/data"}]
    assert pod["spec"]["nodeSelector"] == {"ebb.dev/node-group": "manager"}
    assert "nvidia.com/gpu" not in str(container["resources"])
    assert violations(pod["spec"]) == []


def test_the_clouds_identity_comes_by_account_and_the_jobs_own_words_win() -> None:
    identity = Copies(image="c", selector={}, account="ebb-copy", environment={"AWS_REGION": "us-west-2", "AWS_X": "1"})
    (pod,) = created(look(job(), platform=platform(copies=identity)))
    assert pod["spec"]["serviceAccountName"] == "ebb-copy"
    assert pod["spec"]["automountServiceAccountToken"] is False
    (container,) = pod["spec"]["containers"]
    assert container["env"] == [{"name": "AWS_X", "value": "1"}, {"name": "AWS_REGION", "value": "eu-west-1"}, SECRET]
    (usual,) = created(look(job(), platform=platform()))
    assert "serviceAccountName" not in usual["spec"]


def test_a_credential_that_is_a_file_comes_along() -> None:
    named = {"name": "GOOGLE_APPLICATION_CREDENTIALS", "value": "/secrets/gcs.json"}
    at = {"name": "ebb-secret-gcs", "mountPath": "/secrets/gcs.json", "subPath": "value", "readOnly": True}
    secret = {"name": "ebb-secret-gcs", "secret": {"secretName": "ebb-secret-gcs"}}
    others = [{"name": "shm", "emptyDir": {}}, {"name": "output", "persistentVolumeClaim": {"claimName": "ebb-output"}}]
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "output", "mountPath": "/mnt/output"}, at]
    asked = make_job(data=DATA, container={"env": [named], "volumeMounts": mounts}, pod={"volumes": [*others, secret]})
    (pod,) = created(look(asked, platform=platform()))
    assert pod["spec"]["containers"][0]["volumeMounts"][1:] == [at]
    assert pod["spec"]["volumes"][1:] == [secret]


def test_when_it_is_whole_the_job_starts_and_the_pod_goes() -> None:
    waiting = again(job(), look(job(), platform=platform()))
    whole = look(waiting, platform=platform(), copies=(copying(0),))
    assert whole.status.is_true(names.DATA_READY)
    assert whole.status.placement is not None
    assert [event.reason for event in whole.events if event.reason == names.REASON_COPIED] == [names.REASON_COPIED]
    later = look(again(waiting, whole), platform=platform(), copies=(copying(0),))
    assert deleted(later) == ["digits-copy"]
    assert created(later)[0]["metadata"]["name"] == "digits-worker-0"


def test_a_job_that_trains_never_copies_again() -> None:
    waiting = again(job(), look(job(), platform=platform()))
    whole = again(waiting, look(waiting, platform=platform(), copies=(copying(0),)))
    restarted = look(whole, *running(whole, 2), platform=platform())
    assert "digits-copy" not in [pod["metadata"]["name"] for pod in created(restarted)]


def test_what_a_person_has_to_do_holds_the_job_with_the_programs_words() -> None:
    waiting = again(job(), look(job(), platform=platform()))
    said = "copied 3 %: ...\nerror: s3://imagenet refuses the copy (AccessDenied): ask."
    refused = look(waiting, platform=platform(), copies=(copying(names.EXIT_COPY_REFUSED, said),))
    assert deleted(refused) == [], "the hold is written first"
    assert refused.status.hold is not None
    assert refused.status.hold.message == "The data was not copied: s3://imagenet refuses the copy (AccessDenied): ask."
    held = look(again(waiting, refused), platform=platform(), copies=(copying(names.EXIT_COPY_REFUSED, said),))
    assert (held.status.state, deleted(held)) == ("Suspended", ["digits-copy"])
    changed = again(waiting, held)
    changed["metadata"] = {**changed["metadata"], "generation": 2}
    assert [pod["metadata"]["name"] for pod in created(look(changed, platform=platform()))] == ["digits-copy"]


@pytest.mark.parametrize(
    ("code", "said", "words"),
    [
        (1, "error: s3://imagenet/train: connection reset; what was copied is kept", "s3://imagenet/train: connection reset"),
        (137, "copied 3 %", "its pod ended with exit code 137 (OOMKilled)."),
    ],
    ids=["network", "killed"],
)
def test_other_ends_are_tried_again_after_a_pause(code: int, said: str, words: str) -> None:
    waiting = again(job(), look(job(), platform=platform()))
    pod = copying(code, said, reason="OOMKilled" if code == 137 else "")
    failed = look(waiting, platform=platform(), copies=(pod,), now=NOW + 10)
    assert (deleted(failed), failed.wake_at) == ([], NOW + 30)
    assert words in waits(failed)[1]
    assert [event.reason for event in failed.events] == [names.REASON_COPY_FAILED]
    told = look(again(waiting, failed), platform=platform(), copies=(pod,), now=NOW + 20)
    assert told.events == (), "once"
    due = look(again(waiting, failed), platform=platform(), copies=(pod,), now=NOW + 30)
    assert deleted(due) == ["digits-copy"]
    assert len(created(look(again(waiting, due), platform=platform(), now=NOW + 31))) == 1


@pytest.mark.parametrize("end", [{"suspend": True}, {"deadline": stamp(NOW - 1)}], ids=["suspended", "held"])
def test_a_job_that_stops_stops_its_copy(end: Object) -> None:
    stopped = look(job(**end), platform=platform(), copies=(copying(),))
    if not deleted(stopped):  # a hold is written first
        stopped = look(again(job(**end), stopped), platform=platform(), copies=(copying(),))
    assert deleted(stopped) == ["digits-copy"]


def test_another_bucket_is_another_copy() -> None:
    other = {"url": "s3://imagenet/val", "path": "/mnt/data/val"}
    first = look(job(), platform=platform(), copies=(copying(0, data=other),))
    assert (deleted(first), created(first)) == (["digits-copy"], [])
    assert not first.status.is_true(names.DATA_READY)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"url": URL, "path": "/mnt/sets/x"}, "use /mnt/data/..."),
        ({"url": URL, "path": "/mnt/data"}, "no folder of a volume that can be written"),
        ({"url": URL, "path": "/mnt/data/../../etc"}, "no folder of a volume that can be written"),
        ({"url": "s3://a/x", "path": PATH}, "is no name of a bucket"),
    ],
    ids=["read-only", "whole volume", "outside", "no bucket"],
)
def test_places_that_cannot_be_are_refused_before_anything_is_made(data: Object, says: str) -> None:
    refused = look(job(data=data), platform=platform())
    assert refused.actions == ()
    assert refused.status.hold is not None
    assert says in refused.status.hold.message


def test_a_stack_that_copies_nothing_says_so() -> None:
    assert "run `pulumi up`" in waits(look(job(), platform=platform(copies=None)))[1]


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (
            {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "none"}}}]},
            "the copy cannot start: ErrImagePull: none",
        ),
        (
            {"phase": "Pending", "containerStatuses": [], "conditions": [{"type": "PodScheduled", "status": "False"}]},
            "waits for room on the platform's machine",
        ),
    ],
    ids=["image", "room"],
)
def test_a_copy_that_cannot_start_says_why(status: Object, says: str) -> None:
    assert says in waits(look(job(), platform=platform(), copies=(copying(**status),)))[1]
