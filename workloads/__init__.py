"""Everything that runs in the cluster, the same on every cloud: Pulumi code that declares it, and the files that it applies.

cluster.py has the records that a cloud fills, manifest.py reads manifests/. Each further module is a concern, whose functions
return the resources that others depend on: namespaces, etcd, storage, helpers, platform. Nothing here knows which cloud it is.
"""
