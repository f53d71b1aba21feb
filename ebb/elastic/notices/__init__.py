"""Notices: a machine hears that it will be taken back, and warns its workers in time.

    notice.py        in every worker: SIGTERM becomes a flag that is read at step boundaries
    watcher.py       in the launcher, outside Kubernetes: one thread asks the cloud's metadata service
    choice.py        which cloud's it asks, of those that ebb/metadata knows
    relay.py         the deadline and the wish for a checkpoint, from the launcher to its workers

Inside Kubernetes only notice.py works: there the notice is SIGTERM with its grace, and no address is asked. The agent of the
machine (ebb/notices) asks it, and the controller acts on what that writes down.
"""
