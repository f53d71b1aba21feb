"""The program of `ebb check storage`: it measures a volume from all machines of a job at once.

    python -m ebb.elastic.launch ... -m ebb.elastic.storagecheck /mnt/data

measure.py: what one machine does, by many threads, for some seconds. __main__.py: one rank; the first of each machine measures,
rank 0 prints a line of JSON for each figure, which ebb/client/diagnostics/storage.py reads.
"""
