"""Jobs in queues of Kueue's real controller: `make prove-kueue`.

manager.py     the controller, built from its Go module, and the objects of an administrator: flavors, queues, cohorts
conftest.py    an API server with Kueue's kinds, Kueue, Ebb's controller with its own rights, and kubelets without machines
test_kueue.py  the promises, in order: they share one cluster
"""
