"""Ebb from Python: what every verb of `ebb` does, as small typed functions. Nothing here prints.

    from workloads import client

    async with client.connect() as ebb:
        for job in await client.list_jobs(ebb):
            print(job.name, job.state, job.loss)

A verb is one coroutine whose first argument is the connection; it returns frozen dataclasses, whose fields are those of
`-o json`, and raises `client.ClientError` (a sentence that says how to put it right) or `workloads.kube.KubeError`.

reach.py, ebb.py           where the platform is, and the connection to it
request.py, jobfile.py     what a user asks for        fit.py, manifest.py    on which machines, as which ElasticJob
submit.py, change.py       what changes something      watch.py, logs.py      what looks; view.py: a job in plain words
"""

from workloads.client.change import Scaled, delete, resume, scale, stop
from workloads.client.ebb import Ebb, connect
from workloads.client.errors import BadRequest, ClientError, Missing, NoPlatform, TimedOut
from workloads.client.fit import Fit, Price, find_fit, price
from workloads.client.jobfile import read_file, request_of
from workloads.client.request import Request
from workloads.client.submit import Prepared, prepare, submit
from workloads.client.view import JobView, WorkerView
from workloads.client.watch import Seen, list_jobs, status, wait

__all__ = [
    "BadRequest",
    "ClientError",
    "Ebb",
    "Fit",
    "JobView",
    "Missing",
    "NoPlatform",
    "Prepared",
    "Price",
    "Request",
    "Scaled",
    "Seen",
    "TimedOut",
    "WorkerView",
    "connect",
    "delete",
    "find_fit",
    "list_jobs",
    "prepare",
    "price",
    "read_file",
    "request_of",
    "resume",
    "scale",
    "status",
    "stop",
    "submit",
    "wait",
]
