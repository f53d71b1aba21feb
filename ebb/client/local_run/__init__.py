"""A job on this machine, without a platform: what `ebb local` does.

    run = plan(request, find_python(None))            # which command, where, with which environment
    ended = start(run, note=print)                    # until it is over; Ctrl-C lets it write a checkpoint first

plan.py   a request -> a command, with a Python that has torch        process.py   the command, and how it ended
The trainer is a process of its own: nothing here imports it.
"""

from ebb.client.local_run.plan import Interpreter, LocalRun, find_python, plan, request_of_elastic_job
from ebb.client.local_run.process import LocalResult, start

__all__ = ["Interpreter", "LocalResult", "LocalRun", "find_python", "plan", "request_of_elastic_job", "start"]
