"""Imported by the launcher's fork server, and by nothing else: importing it is what it does.

Beside it the fork server loads torch and the program, if that is one of ours, so that a worker of a new generation starts in
tenths of a second instead of the seconds that importing torch takes. It leaves the launcher's session: a signal to the whole
process group then reaches the launcher alone, which passes it on to the workers and waits for them.
"""

import os

import torch  # noqa: F401

import ebb.elastic.launch.worker  # noqa: F401

os.setsid()
