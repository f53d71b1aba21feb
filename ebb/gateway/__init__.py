"""The gateway: files of the jobs' volumes over HTTP, for `ebb data` and `ebb outputs`. `python -m ebb.gateway` runs it.

    GET    /v1/volumes                                   what there is, and how full
    GET    /v1/list?path=/mnt/data/x[&recursive=1]       one JSON object a line
    GET    /v1/stat?path=...[&sha256=1[&first=N]]        kind, size, modified_ns, etag
    GET    /v1/files?path=...                            Range: bytes=N-; If-Match: etag
    GET    /v1/uploads?path=...&size=...&sha256=...      where an upload that broke off goes on
    PUT    /v1/files?path=...&size=...&sha256=...        the bytes from &offset=N on; in place when all are there and right
    DELETE /v1/files?path=...[&recursive=1]
    GET    /healthz

One small pod in the jobs' namespace, as a claim belongs to one namespace. It runs as the jobs' user and has no token. It listens
on its pod's loopback, which clients reach by the API server's port-forward: other pods do not, with network policies or without.
Anyone allowed to do that may read and write the volumes by a job as well, so it does not authenticate. Paths are those that
workers see. volumes.py holds them inside the volumes, uploads.py is what is on its way, app.py speaks HTTP, and probe.py asks for
the kubelet whether it answers.
"""
