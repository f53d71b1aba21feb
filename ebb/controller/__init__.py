"""The ElasticJob: its API object, the controller that runs it, and `ebb`, the researcher's command.

contract.py   the names that join the packages         platform.py   what the stack built
job/          the API object: spec, status, their schema and the CRD
plan/         the decision (job, what is there, now) -> actions and status; pure. Start at reconcile.py
control/      the loop that acts on it, its copy of the cluster, the Lease, the metrics
kube/         the API server: client, credentials, reflector            etcd/   its alarm, its upkeep
client/       what a researcher may do, as a Python API    cli/  the same as the command `ebb`
manifests/, jobs/   what is applied to a cluster
"""
