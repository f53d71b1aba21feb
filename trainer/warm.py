"""Imported by the launcher's fork server, and by nothing else: importing it is what it does.

It loads what a worker needs, so that a worker of a new generation starts in tenths of a second instead of the seconds that
importing torch takes, and it leaves the launcher's session: a signal to the whole process group then reaches the launcher
alone, which passes it on to the workers and waits for them.
"""

import os

import trainer.train  # noqa: F401

os.setsid()
