"""The data path: the samples of each step, the sources of images, and batches on the device in time.

Read in this order: order.py, sampler.py (for loops of one's own), index.py, images.py, shards.py, loader.py, tuning.py.
"""

from ebb.elastic.data.augment import normalise
from ebb.elastic.data.batching import Batch, batches, on_device
from ebb.elastic.data.images import Files, Images, open_images, open_source
from ebb.elastic.data.loader import ElasticLoader
from ebb.elastic.data.order import Piece, Sample
from ebb.elastic.data.sampler import ElasticBatchSampler, InOrder
from ebb.elastic.data.sealed import DataError
from ebb.elastic.data.seeding import Seeded
from ebb.elastic.data.sequence import ShardSequence
from ebb.elastic.data.tuning import Site, advice, loader_workers, loading_rate, workers_beside_cpu_training

__all__ = [
    "Batch",
    "DataError",
    "ElasticBatchSampler",
    "ElasticLoader",
    "Files",
    "Images",
    "InOrder",
    "Piece",
    "Sample",
    "Seeded",
    "ShardSequence",
    "Site",
    "advice",
    "batches",
    "loader_workers",
    "loading_rate",
    "normalise",
    "on_device",
    "open_images",
    "open_source",
    "workers_beside_cpu_training",
]
