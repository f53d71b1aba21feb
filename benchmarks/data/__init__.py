"""Data that is prepared by programs that are killed: `python -m benchmarks.data`."""
