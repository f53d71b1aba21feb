"""The runtime as a folder, for images that are not ours: `python3 FOLDER/python ...` starts the launcher.

    python3 -m ebb.elastic.portable FOLDER --urllib3 DIR       # in workloads/Dockerfile; DIR: where pip has put urllib3

A pod copies the folder onto a volume of its own before its worker starts (client/submission/own_image.py). It needs Python 3.9
or newer and torch, and nothing else of the image: no pip, no shell. `start` finds the interpreter, __main__.py here makes the
folder, entry.py becomes its __main__.py. The one top-level name in it is `ebb`: urllib3, which etcd is asked with, becomes a part
of that, as pip keeps its own one, so that a program finds the image's.
"""
