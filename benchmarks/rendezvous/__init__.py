"""The rendezvous on every etcd that we promise to work with, in full: `python -m benchmarks.rendezvous`."""
