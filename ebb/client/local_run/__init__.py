"""A job on this machine, without a platform: what `ebb local` does.

    run = plan(request, find_python(None))            # which command, where, with which environment
    ended = start(run, note=print)                    # until it is over; Ctrl-C lets it write a checkpoint first

plan.py   a request -> a command        interpreter.py   a Python with torch        process.py   the command, and how it ended
The trainer is a process of its own: nothing here imports it.
"""

from ebb.client.local_run.interpreter import Interpreter, find_python
from ebb.client.local_run.plan import LocalRun, plan, request_of_elastic_job
from ebb.client.local_run.process import Ended, start

__all__ = ["Ended", "Interpreter", "LocalRun", "find_python", "plan", "request_of_elastic_job", "start"]
