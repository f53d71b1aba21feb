"""Instance metadata: what the clouds announce to a machine of theirs, each as one Announcement.

    source = SOURCES[detect()](os.environ)     # of ebb.metadata.firmware
    announcement = source.look()               # None: nothing is announced; raises MetadataError: nothing was learnt

    announcement.py  data, and the interface of a cloud to whoever watches it
    aws.py gcp.py azure.py   the clouds
    firmware.py      which of them this machine belongs to; never found out by asking a network address
    polling.py       patience with a service that does not answer, or answers wrongly
    service.py       requests that end in time whatever answers

Two watch them: the launcher of a machine without Kubernetes (ebb/elastic/notices) and, in a cluster, the agent of each spot
machine (ebb/notices). The standard library only, as the agent runs beside every job.
"""
