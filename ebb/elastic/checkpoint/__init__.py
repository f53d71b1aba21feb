"""Checkpoints that cannot lie: whole or not there, committed by the newest generation only, found again by anyone.

Read in this order: manifest.py (what one is), files.py (the disk), fence.py (who may commit), folder.py (how one comes to be and
is found), retention.py, snapshot.py and saver.py (at what cost, and when), state.py and optimizers.py (what is inside), owner.py,
plain.py and seeds.py.
Nothing imported here loads torch: the launcher and the command `python -m ebb.elastic.checkpoint` do without.
"""

from ebb.elastic.checkpoint.errors import (
    CheckpointError,
    DamagedCheckpointsError,
    FenceUnreachable,
    ForeignCheckpointError,
    NotWritten,
    OwnedFolderError,
    RefusedError,
    Stale,
)
from ebb.elastic.checkpoint.fence import EtcdFence, Fence, FileFence, highest_generation
from ebb.elastic.checkpoint.folder import CheckpointFolder, Found
from ebb.elastic.checkpoint.manifest import Manifest, newest_manifest
from ebb.elastic.checkpoint.owner import Owner, claim_folder

__all__ = [
    "CheckpointError",
    "CheckpointFolder",
    "DamagedCheckpointsError",
    "EtcdFence",
    "Fence",
    "FenceUnreachable",
    "FileFence",
    "ForeignCheckpointError",
    "Found",
    "Manifest",
    "NotWritten",
    "OwnedFolderError",
    "Owner",
    "RefusedError",
    "Stale",
    "claim_folder",
    "highest_generation",
    "newest_manifest",
]
