"""The Pulumi program. Read in this order: config/ (the stack's settings), cloud.py (what a cloud gives), clouds/ (one cloud
each), services/ (what runs in the cluster), program.py (all of it on one screen).
"""
