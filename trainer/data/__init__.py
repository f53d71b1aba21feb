"""The data path: which sample belongs to which step, where images come from, and how they get to the device in time.

Read in this order: order.py, sampler.py (for loops of one's own), index.py, images.py, shards.py, loader.py, tuning.py.
"""

from trainer.data.images import Images, open_images, open_source
from trainer.data.loader import Batch, ElasticLoader, batches, on_device
from trainer.data.sampler import ElasticBatchSampler, InOrder
from trainer.data.sealed import DataError
from trainer.data.seeding import Seeded
from trainer.data.sequence import ShardSequence

__all__ = [
    "Batch",
    "DataError",
    "ElasticBatchSampler",
    "ElasticLoader",
    "Images",
    "InOrder",
    "Seeded",
    "ShardSequence",
    "batches",
    "on_device",
    "open_images",
    "open_source",
]
