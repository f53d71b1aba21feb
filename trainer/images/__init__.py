"""Training on images: networks, schedules, losses, averages, counting, and the program that uses them.

train.py       the process; __main__.py: `python -m trainer.images`, with the original example's flags and defaults
options.py     what can be set; config.py: the defaults of `python -m trainer`; batch.py: how many samples a step has
learning.py    the loop, validations, and what is shown of them
feed.py        how many loader processes a rank has
models.py      every classification network of torchvision, by its name
schedule.py    the learning rate, a pure function of the samples used so far
mixup.py       blends of two images, the same ones at any number of ranks
loss.py        the loss of every sample by itself
average.py     the moving average of the weights
accuracy.py    right answers, counted without waiting for the device
"""
