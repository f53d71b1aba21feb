"""The loader processes of a rank for images, and advice when they are too slow.

    feed = Feed.choose(config, dataset, device, world_size=4, say=print)
    run.loader(dataset, workers=feed.workers, advice=feed.advice)

On a GPU `--workers -1` is measured (data/tuning.py). On the CPU the loader and the network share the cores, so that what is best
for the loader alone is not: one less than the cores, 8 at most.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ebb.elastic.data import Files, Images, Site, advice, loader_workers, loading_rate, workers_beside_cpu_training
from trainer.images.options import VisionConfig


@dataclass(frozen=True)
class Feed:
    workers: int
    advice: str

    @classmethod
    def choose(
        cls,
        config: VisionConfig,
        dataset: Images,
        device: torch.device,
        *,
        world_size: int,
        say: Callable[[str], None],
    ) -> "Feed":
        """May measure for some seconds, once per job and kind of machine."""
        cores, asked = config.place.cores, config.workers
        site = Site(
            cores=cores,
            decoding=isinstance(dataset.source, Files),
            image_size=config.image_size,
            micro_batch=min(config.max_micro_batch, -(-config.global_batch // world_size)),
            augment=config.augment,
        )
        if asked < 0 and device.type == "cpu":
            asked = workers_beside_cpu_training(cores)
        rate = loading_rate(dataset, site.micro_batch)
        workers = loader_workers(asked, site, rate, kept_in=config.output, ranks=config.place.local_world_size, say=say)
        return cls(workers, advice(workers, site))
