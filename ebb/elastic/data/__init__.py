"""The data path: which sample belongs to which step, where images come from, and how they get to the device in time.

Read in this order: order.py, sampler.py (for loops of one's own), index.py, images.py, shards.py, loader.py, tuning.py.
"""

from ebb.elastic.data.images import Images, open_images, open_source
from ebb.elastic.data.loader import Batch, ElasticLoader, batches, on_device
from ebb.elastic.data.sampler import ElasticBatchSampler, InOrder
from ebb.elastic.data.sealed import DataError
from ebb.elastic.data.seeding import Seeded
from ebb.elastic.data.sequence import ShardSequence

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
