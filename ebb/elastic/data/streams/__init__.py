"""Data sets in shards of others' formats and our own, as map-style datasets that run.loader reads shard after shard.

Read in this order: sharded.py, cache.py, remote.py, then the formats: webdataset.py, mds.py, parquet.py, tokens.py.
"""
