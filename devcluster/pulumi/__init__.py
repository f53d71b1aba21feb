"""The Pulumi engine of the local cluster: the `pulumi` of a shell after `source ./env`, and a stand-in for the official plugin.

Read in this order: launcher.py (which CLI and which plugin are used), server.py and provider.py (the stand-in, a plugin
process), cluster.py (what it does to Kubernetes), objects.py, changes.py and readiness.py (what it decides; pure).
docs/pulumi-stand-in.md is for those who run it. It serves plain Kubernetes resources only: no charts, bundles or patches.
"""
