"""Stand-ins for what is not on this machine, and what tests and benchmarks share: no part of the product.

pulumi/            the Kubernetes plugin's stand-in and mocks of the clouds, for the real Pulumi engine
foreign_images.py  an image that is not ours, by debootstrap
ports.py           ports for servers that a test or a benchmark starts
exactness.py       reads the sample ledgers of a job and says which samples were lost or repeated
"""
