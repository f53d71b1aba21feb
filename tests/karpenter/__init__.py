"""A stack's NodePools in the hands of Karpenter's real controller: `make prove-karpenter`.

kwok.py        the controller, built with its kwok provider, which makes Nodes and no machines; what kubelets would do to them
conftest.py    an API server, a scheduler, Karpenter and Ebb's controller; the stack's NodePools and ConfigMap ebb-platform
test_karpenter.py    the promises, in order: they share one cluster
"""
