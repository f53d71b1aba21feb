"""`ebb check network`'s program over links whose speed is known.

__main__.py: `python -m benchmarks.network`. stream.py: what plain TCP carries over the same links, run in a namespace by path.
"""
