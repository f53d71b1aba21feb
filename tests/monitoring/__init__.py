"""Metrics, alerts and dashboards against what the code exports: pure tests, and proofs with Prometheus itself.

known.py       the metrics that there are: the code's own registries, and what programs of others export
prometheus.py  promtool and Prometheus, built from the pinned module
"""
