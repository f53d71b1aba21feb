"""Starting a job: what was asked for -> the ElasticJob that would be sent -> the job.

prepared = prepare(ebb, request)            # nothing is sent yet: look at it, or print it
job = await submit(ebb, prepared.body)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workloads.client.ebb import Ebb
from workloads.client.errors import ClientError
from workloads.client.fit import Fit, find_fit
from workloads.client.manifest import manifest
from workloads.client.request import Request
from workloads.client.view import JobView, view
from workloads.kube import ELASTIC_JOBS, Conflict, NotFound, Object


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A request on its platform, and the ElasticJob that it becomes. A whole ElasticJob has neither of the first."""

    request: Request | None
    fit: Fit | None
    body: Object


def prepare(ebb: Ebb, request: Request) -> Prepared:
    """What would be sent. Raises BadRequest."""
    fit = find_fit(request, ebb.platform)
    return Prepared(request=request, fit=fit, body=manifest(request, fit, ebb.platform, ebb.namespace))


def prepare_whole(ebb: Ebb, file: Mapping[str, Any], namespace: str | None) -> Prepared:
    """An ElasticJob that is sent as it is; `namespace` wins over the file's."""
    metadata = {"namespace": ebb.namespace, **file["metadata"]}
    if namespace:
        metadata["namespace"] = namespace
    return Prepared(request=None, fit=None, body={**file, "metadata": metadata})


async def submit(ebb: Ebb, body: Object) -> JobView:
    """Send it. Raises ClientError when the name is taken or the namespace is not there, KubeError."""
    name = body["metadata"]["name"]
    namespace = body["metadata"].get("namespace") or ebb.namespace
    try:
        return view(await ebb.kube.create(ELASTIC_JOBS, namespace, body))
    except Conflict as error:
        raise ClientError(
            f"name {name!r} is taken: choose another --name, or remove that job with `ebb delete {name}`."
        ) from error
    except NotFound as error:
        raise ClientError(
            f"namespace {namespace!r}, or the kind ElasticJob in it, is not there ({error}). "
            "Check -n, or run `pulumi up` to repair the stack."
        ) from error
