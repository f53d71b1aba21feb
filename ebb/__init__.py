"""Ebb: elastic PyTorch training on spot machines.

    from ebb import elastic        # inside a training program: pip install ebb-train[train]
    from ebb import client         # from a notebook or a script: what the command `ebb` does, as typed functions

elastic/      the training runtime          api/     what the others share: the ElasticJob, platform facts, names
controller/   the ElasticJob controller     kube/    the way to an API server
gateway/      files and logs of a platform  client/, cli/   the typed Python API, and the command over it

`elastic`, `controller` and `client` never import each other: they are joined by texts (api/contract.py has the names).
"""
