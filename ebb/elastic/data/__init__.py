"""The data path: the samples of each step, the sources of images, and batches on the device in time.

Read in this order: order.py, sections.py, index.py, images.py, shards.py, node_cache.py, batching.py, tuning.py; streams/ has
data in shards of others' formats. Programs read through run.loader.
"""

from ebb.elastic.data.augment import normalise
from ebb.elastic.data.batching import Batch, batches
from ebb.elastic.data.images import Files, Images, open_images, open_source
from ebb.elastic.data.node_cache import NodeCache
from ebb.elastic.data.order import Piece, Sample
from ebb.elastic.data.sealed import DataError
from ebb.elastic.data.seeding import Seeded
from ebb.elastic.data.tuning import Site, advice, loader_workers, loading_rate, workers_beside_cpu_training

__all__ = [
    "Batch",
    "DataError",
    "Files",
    "Images",
    "NodeCache",
    "Piece",
    "Sample",
    "Seeded",
    "Site",
    "advice",
    "batches",
    "loader_workers",
    "loading_rate",
    "normalise",
    "open_images",
    "open_source",
    "workers_beside_cpu_training",
]
