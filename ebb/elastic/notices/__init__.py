"""Notices: a machine hears that it will be taken back, and warns its workers in time.

    notice.py        in every worker: SIGTERM becomes a flag that is read at step boundaries
    watcher.py       in the launcher, outside Kubernetes: one thread asks the cloud's metadata service
    aws.py gcp.py azure.py   what each cloud announces, as one Announcement
    choice.py        which of them this machine has; never found out by asking a network address
    relay.py         the deadline and the wish for a checkpoint, from the launcher to its workers
    metadata.py      requests that end in time whatever answers

Inside Kubernetes only notice.py works: there the notice is SIGTERM with its grace, and no address is asked.
"""
