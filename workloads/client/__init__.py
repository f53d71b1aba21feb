"""Ebb from Python: what every verb of `ebb` does, as small typed functions. Nothing here prints.

    from workloads import client

    async with client.connect() as ebb:
        for job in await client.list_jobs(ebb):
            print(job.name, job.state, job.loss)

A verb is one coroutine whose first argument is the connection; it returns frozen dataclasses, whose fields are those of
`-o json`, and raises `client.ClientError` (a sentence that says how to put it right) or `workloads.kube.KubeError`.

connection/   where a platform is, and the way to it        submission/   what a user asks for, and the ElasticJob of it
looking/      jobs in plain words, now and as they change   story/         what happened to them      logs/   what they print
change.py     scale, stop, resume, delete                   travel/        what goes along: code, checkpoints
volumes/      files, outputs, and the insides of workers    money/, gpus.py   what it costs, and what is free
sweep/        many runs of one program                      report/        one page of a job or a sweep
health/       is everything in order                        local/         a job on this machine, without a platform
"""

from workloads.client.change import Scaled, delete, resume, scale, stop
from workloads.client.connection import platforms
from workloads.client.connection.ebb import Ebb, connect
from workloads.client.connection.everywhere import Answer, everywhere
from workloads.client.errors import BadRequest, ClientError, Missing, NoPlatform, TimedOut
from workloads.client.health.check import check
from workloads.client.health.symptoms import Finding
from workloads.client.looking.top import Top, top_now
from workloads.client.looking.view import JobView, WorkerView
from workloads.client.looking.waiting import wait_for
from workloads.client.looking.watch import Seen, list_jobs, status, wait
from workloads.client.story.events import events, follow_events
from workloads.client.story.timeline import Entry
from workloads.client.submission.fit import Fit, Price, find_fit, price
from workloads.client.submission.jobfile import read_file, request_of
from workloads.client.submission.request import Request
from workloads.client.submission.submit import Prepared, prepare, submit
from workloads.client.travel.clone import Clone, clone
from workloads.client.travel.code import Code, packed
from workloads.client.volumes import data
from workloads.client.volumes.files import Files, gateway
from workloads.client.volumes.outputs import fetch_outputs, list_outputs
from workloads.client.volumes.workers import Executed, execute, port

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
