"""Latency of `ebb` as a user experiences it: `python -m benchmarks.cli`.

plane.py     500 jobs on a real API server       measure.py   whole processes, in turns

Not measured: the network between a user and a cluster, and clusters that are busy.
"""
