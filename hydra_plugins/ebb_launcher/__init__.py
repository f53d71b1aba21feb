"""A launcher for Hydra: `python train.py -m hydra/launcher=ebb lr=0.1,0.01` trains each combination as a job of a platform.

Hydra finds this by its place (a folder in the namespace package hydra_plugins) wherever Ebb and hydra-core are both installed.
Nothing of Ebb imports it, and Ebb does not need Hydra.
"""
