"""The program of `ebb check network`: it measures the network between a job's ranks and says which one was used.

    python -m ebb.elastic.launch ... -m ebb.elastic.netcheck --adapters all

bandwidth.py: the operations, their sizes and nccl-tests' definitions. adapters.py: a machine's fast adapters, and the network
that NCCL says it selected. measure.py: times of one operation between all ranks. __main__.py: one rank; rank 0 prints a line of
JSON for each figure, which ebb/client/diagnostics/network.py reads.
"""
