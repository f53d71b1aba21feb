"""Ebb from Python: what every verb of `ebb` does, as small typed functions. Nothing here prints.

    from ebb import client

    async with client.connect() as ebb:
        for job in await client.list_jobs(ebb):
            print(job.name, job.state, job.loss)

A verb is one coroutine whose first argument is the connection; it returns frozen dataclasses, whose fields are those of
`-o json`, and raises `client.ClientError` (a sentence that says how to put it right) or `ebb.kube.KubeError`.

platform/     where a platform is, and connecting to it      submission/   requests, and the ElasticJob made of each
jobs/         jobs as they are now and as they change       timeline/     what happened to them      logs/   what they print
change.py     scale, stop, resume, delete                   staging/      code and checkpoints that travel with a job
secrets/      tokens and keys for jobs
files/        volumes, outputs, and the insides of workers  costs/, gpus.py   prices, bills, free machines
sweep/        many runs of one program                      report/       one HTML page of a job or a sweep
diagnostics/  `ebb check`                                   local_run/    a job on this machine, without a platform
"""

from ebb.client.change import Scaled, delete, resume, scale, stop
from ebb.client.diagnostics.check import check
from ebb.client.diagnostics.symptoms import Finding
from ebb.client.errors import BadRequest, ClientError, Missing, NoPlatform, TimedOut
from ebb.client.files import data
from ebb.client.files.data import fetch_outputs, list_outputs
from ebb.client.files.transfer import Files, gateway
from ebb.client.files.workers import Executed, execute, port
from ebb.client.jobs.top import Top, top_now
from ebb.client.jobs.view import JobView, WorkerView
from ebb.client.jobs.watch import JobStatus, list_jobs, status, wait, wait_for
from ebb.client.platform import platforms
from ebb.client.platform.connection import Answer, Ebb, connect, everywhere
from ebb.client.secrets.store import SecretView, list_secrets, remove_secret, set_registry_secret, set_secret
from ebb.client.staging.clone import Clone, clone
from ebb.client.staging.code import Code, packed
from ebb.client.submission.fit import Fit, Price, find_fit, price
from ebb.client.submission.jobfile import read_file, request_of
from ebb.client.submission.program import with_code
from ebb.client.submission.request import Request
from ebb.client.submission.submit import Prepared, prepare, submit
from ebb.client.timeline.events import events, follow_events
from ebb.client.timeline.timeline import Entry

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
    "JobStatus",
    "JobView",
    "Missing",
    "NoPlatform",
    "Prepared",
    "Price",
    "Request",
    "Scaled",
    "SecretView",
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
    "list_secrets",
    "packed",
    "platforms",
    "port",
    "prepare",
    "price",
    "read_file",
    "remove_secret",
    "request_of",
    "resume",
    "scale",
    "set_registry_secret",
    "set_secret",
    "status",
    "stop",
    "submit",
    "top_now",
    "wait",
    "wait_for",
    "with_code",
]
