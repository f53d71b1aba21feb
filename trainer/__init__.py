"""The elastic runtime and the reference trainer that runs in a job's pods.

Read in this order: data/order.py (which sample belongs to which step), checkpoint/ (what survives), notice.py (how a reclaim is
heard), elastic.py and run/ (the loop), launch/ (the process that a pod starts).
"""
