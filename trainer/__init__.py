"""The elastic runtime and the reference trainer that runs in a job's pods.

Read in this order: order.py (which sample belongs to which step), checkpoint.py (what survives), notice.py (how a reclaim is
heard), train.py (the loop), launch.py (the process that a pod starts).
"""
