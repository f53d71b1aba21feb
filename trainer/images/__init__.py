"""A reference program that trains a network on images, and its parts.

train.py       the program: the loop, validations and the log
__main__.py    `python -m trainer.images`, with the original example's flags and defaults
options.py     what can be set; config.py: the defaults of `python -m trainer`; batch.py: how many samples a step has
feed.py        how many loader processes a rank has
models.py      every classification network of torchvision, by its name
schedule.py    the learning rate, a pure function of the samples used so far
mixup.py       blends of two images, the same ones at any number of ranks
average.py     the moving average of the weights
"""
