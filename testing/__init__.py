"""Stand-ins for what is not on this machine, and the judge of what was trained on: no part of the product.

pulumi/         the Kubernetes plugin's stand-in and mocks of the clouds, for the real Pulumi engine
exactness.py    reads the sample ledgers of a job and says which samples were lost or repeated
"""
