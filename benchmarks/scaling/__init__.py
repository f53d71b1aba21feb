"""The scaling of training: 1 to 4 ranks measured on this machine, and a model up to 64 GPUs beside the articles' curves.

model.py: the time of a step on n ranks, from that of an all-reduce. cases.py: the models, machines and articles, with what is
assumed of each. measured.py: epochs and all-reduces on this machine. figures.py: all of it as figures, and the promises.
page.py: the page. __main__.py: `python -m benchmarks.scaling`.
"""
