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
money/                     what it costs and did cost  gpus.py                what GPUs there are, and which are free
code.py, delivery.py       what travels with a job    clone.py, checkpoints.py  a job once more
platforms.py, everywhere.py  several platforms
data.py, files.py          the shared volumes          workers.py, outputs.py  what runs in a job, and what it wrote
sweep/                     many runs of one program    local/                 a job on this machine, without a platform
"""

from workloads.client import data, platforms
from workloads.client.change import Scaled, delete, resume, scale, stop
from workloads.client.check import check
from workloads.client.clone import Clone, clone
from workloads.client.code import Code, packed
from workloads.client.ebb import Ebb, connect
from workloads.client.errors import BadRequest, ClientError, Missing, NoPlatform, TimedOut
from workloads.client.events import events, follow_events
from workloads.client.everywhere import Answer, everywhere
from workloads.client.files import Files, gateway
from workloads.client.fit import Fit, Price, find_fit, price
from workloads.client.jobfile import read_file, request_of
from workloads.client.outputs import fetch_outputs, list_outputs
from workloads.client.request import Request
from workloads.client.submit import Prepared, prepare, submit
from workloads.client.symptoms import Finding
from workloads.client.timeline import Entry
from workloads.client.top import Top, top_now
from workloads.client.view import JobView, WorkerView
from workloads.client.waiting import wait_for
from workloads.client.watch import Seen, list_jobs, status, wait
from workloads.client.workers import Executed, execute, port

__all__ = [
    "Answer",
    "BadRequest",
    "ClientError",
    "Clone",
    "Code",
    "Ebb",
    "Entry",
    "Executed",
    "Files",
    "Finding",
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
    "Top",
    "WorkerView",
    "check",
    "clone",
    "connect",
    "data",
    "delete",
    "events",
    "everywhere",
    "execute",
    "fetch_outputs",
    "find_fit",
    "follow_events",
    "gateway",
    "list_jobs",
    "list_outputs",
    "packed",
    "platforms",
    "port",
    "prepare",
    "price",
    "read_file",
    "request_of",
    "resume",
    "scale",
    "status",
    "stop",
    "submit",
    "top_now",
    "wait",
    "wait_for",
]
