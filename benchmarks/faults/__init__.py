"""Faults of the controller on a real API server, and what must hold all the same: `python -m benchmarks.faults`."""
