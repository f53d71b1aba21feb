"""Starting a job: what was asked for -> the ElasticJob that would be sent -> the job.

prepared = prepare(ebb, request)            # nothing is sent yet: look at it, or print it
job = await submit(ebb, prepared.body, code=prepared.code)
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ebb.api.contract import ANNOTATION_OWNER
from ebb.client.errors import ClientError
from ebb.client.jobs.view import JobView, view
from ebb.client.jobs.watch import ignore
from ebb.client.platform.connection import Ebb
from ebb.client.secrets.store import check_there
from ebb.client.staging.code import Code, packed
from ebb.client.staging.delivery import CodePlace, Delivery, DeliveryFiles, deliver, find_output, place_of
from ebb.client.staging.wheels import fetch, wheels_for
from ebb.client.submission import own_image
from ebb.client.submission.fit import Fit, find_fit, quota_notes
from ebb.client.submission.manifest import manifest
from ebb.client.submission.request import Request
from ebb.kube import ELASTIC_JOBS, Conflict, KubeError, NotFound, Object, Unreachable


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A request on its platform, and the ElasticJob that it becomes. A whole ElasticJob has neither of the first."""

    request: Request | None
    fit: Fit | None
    body: Object
    code: CodePlace | None = None


def prepare(ebb: Ebb, request: Request, code: Code | None = None, note: Callable[[str], None] = ignore) -> Prepared:
    """Return what would be sent. `code`: what packed() made of request.code, where several jobs share it. Raises BadRequest."""
    fit = find_fit(request, ebb.platform)
    if code is None and request.code:
        code = packed(Path(request.code), note)
    if code is not None and request.image is not None and not ebb.platform.launcher_image:  # a stack of an older Ebb
        note(f"image {request.image} must start Ebb's launcher (python -m ebb.elastic.launch): that unpacks the code.")
    notes = quota_notes(fit, ebb.namespace, ebb.platform)
    for text in (*notes, *own_image.torch_notes(request.image, request.name, ebb.platform)):
        note(text)
    place = place_of(code, request.name, ebb.platform) if code else None
    if code and place and request.image is None and find_output(ebb.platform):  # wheels fit the Python of our own image
        place = replace(place, wheels=wheels_for(Path(code.folder), request.env, ebb.platform))
    body = manifest(request, fit, ebb.platform, ebb.namespace, place, owner=ebb.owner)
    return Prepared(request=request, fit=fit, body=body, code=place)


def prepare_whole(ebb: Ebb, file: Mapping[str, Any], namespace: str | None) -> Prepared:
    """An ElasticJob that is sent as it is, with its owner in a team's namespace; `namespace` wins over the file's."""
    metadata = {"namespace": ebb.namespace, **file["metadata"]}
    if namespace:
        metadata["namespace"] = namespace
    if ebb.owner:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), ANNOTATION_OWNER: ebb.owner}
    return Prepared(request=None, fit=None, body={**file, "metadata": metadata})


async def submit(ebb: Ebb, body: Object, *, code: CodePlace | None = None, note: Callable[[str], None] = ignore) -> JobView:
    """Send it, and first the code that travels with it: if the job cannot be made, that is taken back.

    Raises Missing for a secret that is not there, ClientError when the name is taken or the namespace is not there, KubeError.
    """
    namespace = body["metadata"].get("namespace") or ebb.namespace
    await check_there(ebb, namespace, body)
    if code is None:
        return view(await _create(ebb, namespace, body))
    if code.wheels:
        files = await fetch(code.wheels, note)
        place = code.wheels.place(find_output(ebb.platform))
        async with _files(ebb) as gateway:
            for file in files:
                await gateway.put(f"{place}/{file.name}", file, moved=lambda _: None)
    delivery = await _deliver(ebb, namespace, code, note)
    try:
        job = await _create(ebb, namespace, body)
    except BaseException as error:  # also Ctrl-C
        await _settle(ebb, namespace, body, delivery, error)
        raise
    await delivery.belongs_to(job)
    return view(job)


async def _settle(ebb: Ebb, namespace: str, body: Object, delivery: Delivery, error: BaseException) -> None:
    """Take the code back where there is no job. Where the answer was lost, or not waited for, there may be one all the same: its
    pods would wait for their code for ever."""
    if isinstance(error, ClientError) or (isinstance(error, KubeError) and not isinstance(error, Unreachable)):
        await delivery.undo()
        return
    with suppress(KubeError):  # what cannot be known is left as it is: a later job of that name replaces it
        try:
            job = await ebb.kube.get(ELASTIC_JOBS, namespace, body["metadata"]["name"])
        except NotFound:
            await delivery.undo()
        else:
            await delivery.belongs_to(job)


async def _deliver(ebb: Ebb, namespace: str, code: CodePlace, note: Callable[[str], None]) -> Delivery:
    if code.config_map or code.code.on_volume:
        try:
            return await deliver(ebb.kube, namespace, code, None, note, owner=ebb.owner)
        except NotFound as error:
            raise _no_namespace(namespace, error) from error
    async with _files(ebb) as files:
        return await deliver(ebb.kube, namespace, code, files, note, owner=ebb.owner)


@asynccontextmanager
async def _files(ebb: Ebb) -> AsyncIterator[DeliveryFiles]:
    from ebb.client.files.transfer import gateway  # noqa: PLC0415 - most jobs need none of it

    async with gateway(ebb) as files:
        yield files


async def _create(ebb: Ebb, namespace: str, body: Object) -> Object:
    name = body["metadata"]["name"]
    try:
        return await ebb.kube.create(ELASTIC_JOBS, namespace, body)
    except Conflict as error:
        raise ClientError(
            f"name {name!r} is taken: choose another --name, or remove that job with `ebb delete {name}`."
        ) from error
    except NotFound as error:
        raise _no_namespace(namespace, error) from error


def _no_namespace(namespace: str, error: NotFound) -> ClientError:
    return ClientError(
        f"namespace {namespace!r}, or the kind ElasticJob in it, is not there ({error}). "
        "Check -n, or run `pulumi up` to repair the stack."
    )
