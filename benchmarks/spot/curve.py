"""The speed of data-parallel training on n GPUs, and the figures of the article that the costs stand beside.

The article (A. Pinhasi, "How Built a Multi-Cloud, Distributed Training Platform Over Spot Instances with TorchElastic and
Kubernetes", 2021) reports a nearly linear speed-up to 16 GPUs, one of 8 to 10 from 4 to 64, 60 to 70 % saved on up to 16 GPUs and
some 40 % on 32 and more. The saving shrinks there because 32 GPUs do less than twice the work of 16: it is against on-demand
machines that do the same work on few GPUs.
"""

FEW = 4  # GPUs, of which the article measures its speed-up
SPEED_UP_64 = 9.0  # from 4 to 64 GPUs: the middle of 8 to 10
# Each GPU beyond 4 costs all of them the same part of their time: 64 / 4 / (1 + 60 x) = 9.
SLOWER = (64 / FEW / SPEED_UP_64 - 1) / (64 - FEW)
ARTICLE = {4: (0.6, 0.7), 8: (0.6, 0.7), 16: (0.6, 0.7), 32: (0.4, 0.4), 64: (0.4, 0.4)}


def speed(gpus: int) -> float:
    """Samples per second, in those of one GPU of four."""
    return gpus / (1 + SLOWER * max(0, gpus - FEW))
