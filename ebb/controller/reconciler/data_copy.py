"""The copy of a job's bucket, before the job asks for machines: one pod, on the platform's own machine. Pure.

    may_go_on = ready(view, draft)          # False: the job waits, is held, or the copy starts now
    stop(view, draft)                       # the job is suspended, held or over

The pod runs `python -m ebb.buckets`, which goes on where an earlier one was killed. One that ends with EXIT_COPY_REFUSED waits
for a person: the job is held, with its last words. Any other end is tried again. Jobs that name the same bucket have the same
folder, and the program lets one of them copy while the others wait.
"""

import hashlib
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from ebb.api import contract as names
from ebb.api.buckets import UrlError, parse_url
from ebb.api.clock import unix
from ebb.api.parts import Data
from ebb.api.platform import Copies, Volume
from ebb.api.spec import Job
from ebb.api.template import worker_container
from ebb.controller.reconciler.lifecycle import hold
from ebb.controller.reconciler.pods import owner_reference
from ebb.controller.reconciler.summary import blocked
from ebb.controller.reconciler.types import CreatePod, DeletePod, JobView, PlanBuilder

Object = dict[str, Any]

AGAIN_SECONDS = 30.0  # after a copy that failed, until the next one starts
CREDENTIALS = ("AWS_", "GOOGLE_", "AZURE_")  # variables of the training container that the copy gets too
USER = 1000  # the owner of the shared volumes
ERROR = "error: "  # before the last line of a copy that failed


def ready(view: JobView, draft: PlanBuilder) -> bool:
    """See the module's docstring."""
    data = view.job.spec.data
    if data is None:
        stop(view, draft)
        return True
    condition = draft.status.condition(names.DATA_READY)
    if condition and (condition.status, condition.message) == ("True", _whole(data)):
        stop(view, draft)
        return True
    pods = [pod for pod in view.observed.copies if _label(pod) == mark(data)]
    if len(pods) < len(view.observed.copies):  # of what the spec said before
        stop(view, draft, but=pods)
        return _wait(view, draft, data, "an earlier copy is being stopped.")
    if not pods:
        return _start(view, draft, data)
    ended = _ended(pods[0])
    if ended is None:
        return _wait(view, draft, data, _pending(pods[0]) or "machines are asked for when it is whole.")
    return _take_up(view, draft, data, ended)


def _take_up(view: JobView, draft: PlanBuilder, data: Data, ended: "_End") -> bool:
    """Act upon the end of a copy."""
    if ended.code == 0:
        whole = _whole(data)
        draft.status = draft.status.with_condition(names.DATA_READY, True, names.REASON_COPIED, whole, view.now)
        draft.event(names.REASON_COPIED, whole)
        return True
    if ended.code == names.EXIT_COPY_REFUSED:
        hold(view, draft, names.REASON_COPY_REFUSED, f"The data was not copied: {ended.words}")
        return False
    return _try_again(view, draft, data, ended)


def stop(view: JobView, draft: PlanBuilder, but: list[Object] | None = None) -> None:
    """Delete the pods that copy, other than those. What they copied stays, and another copy goes on from there."""
    for pod in view.observed.copies:
        metadata = pod["metadata"]
        if pod not in (but or ()) and "deletionTimestamp" not in metadata:
            draft.actions.append(DeletePod(name=metadata["name"], uid=metadata["uid"]))


def copy_name(job: str) -> str:
    """The name of the pod. Not longer than those of workers, so it fits where they do."""
    return f"{job}{names.COPY_SUFFIX}"


def mark(data: Data) -> str:
    """The label's value: copies of one job differ in it when its spec changes."""
    return hashlib.sha256(f"{data.url} {data.path}".encode()).hexdigest()[:16]


def copy_pod(job: Job, data: Data, volume: Volume, copies: Copies) -> Object:
    """The pod, within Pod Security `restricted`, with the credentials of the training container and nothing else of it."""
    template = job.worker.template["spec"]
    trains = worker_container(template["containers"])
    secrets = [one for one in template.get("volumes") or () if "secret" in one]  # GOOGLE_APPLICATION_CREDENTIALS names a file
    kept = {one["name"] for one in secrets}
    files = [one for one in trains.get("volumeMounts") or () if one.get("name") in kept]
    own = [one for one in trains.get("env") or () if one["name"].startswith(CREDENTIALS)]
    named = {one["name"] for one in own}
    usual = [{"name": key, "value": value} for key, value in copies.environment.items() if key not in named]
    container = {
        "name": "copy",
        "image": copies.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["tini", "--", "python3", "-m", "ebb.buckets", data.url, data.path],
        "env": [*usual, *own],
        # Beside etcd and the controller, on one machine. 32 parts of 8 MiB at once, and the file system's cache, which counts.
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}},
        "volumeMounts": [{"name": volume.name, "mountPath": volume.mount_path}, *files],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": copy_name(job.name),
            "namespace": job.namespace,
            "labels": {names.LABEL_GROUP: names.GROUP, names.LABEL_COPY: mark(data), names.LABEL_EBB_JOB: job.name},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "restartPolicy": "Never",
            "priorityClassName": "ebb-job",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 5,
            **({"serviceAccountName": copies.account} if copies.account else {}),
            "nodeSelector": dict(copies.selector),
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [{"name": volume.name, "persistentVolumeClaim": {"claimName": volume.claim}}, *secrets],
        },
    }


def _start(view: JobView, draft: PlanBuilder, data: Data) -> bool:
    platform = view.observed.platform
    if platform is None:
        words = view.observed.platform_problem or "no stack of Ebb describes this cluster, so there is no volume to copy it to."
        return _wait(view, draft, data, words)
    platform = platform.seen_from(view.job.namespace)
    if platform.copies is None:
        return _wait(view, draft, data, "the stack's facts name no image for it: run `pulumi up` with this version of Ebb.")
    volume = _volume(data.path, platform.volumes)
    try:
        parse_url(data.url)
    except UrlError as error:
        hold(view, draft, names.REASON_COPY_REFUSED, f"spec.data.url: {error}")
        return False
    if volume is None:
        places = " or ".join(f"{one.mount_path}/..." for one in platform.volumes if not one.read_only)
        message = f"spec.data.path {data.path!r} is no folder of a volume that can be written: use {places}."
        hold(view, draft, names.REASON_COPY_REFUSED, message)
        return False
    draft.actions.append(CreatePod(copy_pod(view.job, data, volume, platform.copies)))
    return _wait(view, draft, data, "machines are asked for when it is whole.")


def _volume(path: str, volumes: tuple[Volume, ...]) -> Volume | None:
    place = PurePosixPath(path)
    if ".." in place.parts:
        return None
    return next((one for one in volumes if not one.read_only and PurePosixPath(one.mount_path) in place.parents), None)


def _wait(view: JobView, draft: PlanBuilder, data: Data, words: str) -> bool:
    message = f"{data.url} is copied to {data.path}: {words}"
    draft.status = blocked(view, draft.status, names.WAITING_FOR_DATA, message)
    return False


def _try_again(view: JobView, draft: PlanBuilder, data: Data, ended: "_End") -> bool:
    due = ended.at + AGAIN_SECONDS
    if view.now >= due:
        stop(view, draft)
    else:
        draft.wakes.append(due)
    before = draft.status.condition(names.RUNNING)
    again = f"the copy failed and starts again where it was: {ended.words}"
    if before is None or again not in (before.message or ""):
        draft.event(names.REASON_COPY_FAILED, again, warning=True)
    return _wait(view, draft, data, again)


def _whole(data: Data) -> str:
    return f"{data.url} is at {data.path}."


def _label(pod: Object) -> str:
    return str(pod["metadata"]["labels"].get(names.LABEL_COPY, ""))


class _End(NamedTuple):
    code: int
    words: str
    at: float


def _ended(pod: Object) -> _End | None:
    """The end of a pod; None while it has not ended."""
    status = pod["status"]
    if status.get("phase") not in ("Succeeded", "Failed"):
        return None
    states = (one.get("state") or {} for one in status.get("containerStatuses") or ())
    state: Object = next((one["terminated"] for one in states if "terminated" in one), {})
    if status["phase"] == "Succeeded":
        return _End(0, "", 0.0)
    code = int(state.get("exitCode", -1))
    lines = [line for line in str(state.get("message") or "").splitlines() if line.startswith(ERROR)]
    words = lines[-1].removeprefix(ERROR) if lines else _outer(status, state, code)
    return _End(code, words, unix(state.get("finishedAt")) or 0.0)


def _outer(status: Object, state: Object, code: int) -> str:
    """The kubelet's words, where the program had none."""
    said = status.get("message") or status.get("reason") or state.get("reason")
    return f"its pod ended with exit code {code}{f' ({said})' if said else ''}."


def _pending(pod: Object) -> str:
    """The reason why it does not run yet, where somebody may have to act."""
    for one in pod["status"].get("containerStatuses") or ():
        waiting = (one.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return f"the copy cannot start: {waiting['reason']}: {waiting.get('message', '')}"
    for one in pod["status"].get("conditions") or ():
        if (one["type"], one["status"]) == ("PodScheduled", "False"):
            return "the copy waits for room on the platform's machine."
    return ""
