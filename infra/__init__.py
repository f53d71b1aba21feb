"""The Pulumi program. Read in this order: config/ (the stack's settings), cloud.py (the interface of a cloud), clouds/ (one cloud
each), workloads/ (what runs in the cluster, a package of its own), program.py (all of it on one screen).
"""
