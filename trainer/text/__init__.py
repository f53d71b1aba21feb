"""A small language model on bytes: the second reference trainer, and the second user of the data order and the checkpoints.

corpus.py    a corpus that any machine can make by itself: the sources of Python's standard library
windows.py   fixed-length windows of it, addressed by sample number
gpt.py       the network
train.py     the program, on the public API
"""
