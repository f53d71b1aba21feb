"""The ElasticJob controller: `python -m ebb.controller`.

reconciler/         the decision (job, observed, now) -> Plan; pure. Start at reconciler/reconcile.py
controller.py       the loop that acts on it: cluster_cache.py (its copy of the cluster), executor.py, election.py, metrics.py
usage/              machine time and money, by the day        etcd/   the alarm and the upkeep of the platform's etcd
"""
