"""A job on this machine, without a platform: what `ebb local` does.

    run = plan(request, find_python(None))            # which command, where, with which environment
    ended = start(run, note=print)                    # until it is over; Ctrl-C lets it write a checkpoint first

plan.py   a request -> a command        interpreter.py   a Python with torch        process.py   the command, and how it ended
The trainer is a process of its own: nothing here imports it.
"""

from workloads.client.local.interpreter import Interpreter, find_python
from workloads.client.local.plan import LocalRun, plan, request_of_elastic_job
from workloads.client.local.process import Ended, start

__all__ = ["Ended", "Interpreter", "LocalRun", "find_python", "plan", "request_of_elastic_job", "start"]
