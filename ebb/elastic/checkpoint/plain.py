"""The plain file that people know: --checkpoint-file PATH, and the best one beside it as model_best.pth.tar.

    file = PlainFile.claim(Path("/mnt/efs/output/checkpoint.pth"), owner)
    file.publish(data_of_a_committed_checkpoint, best=True)

Every checkpoint's data is such a file already (see state.py), so it is copied, whole or not at all, after each commit. It is for
reading elsewhere: a job goes on from its own folder. Two jobs with the same PATH are refused; two with different names in the
same folder would share model_best.pth.tar, so the second one's is model_best-<name>.pth.tar.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ebb.elastic.checkpoint.errors import OwnedFolderError
from ebb.elastic.checkpoint.files import Disk, copy_whole
from ebb.elastic.checkpoint.owner import Owner, claim_file

BEST = "model_best.pth.tar"


class PlainFile:
    """A path and the best one's, both this job's own."""

    def __init__(self, path: Path, best: Path, disk: Disk) -> None:
        self.path = path
        self.best = best
        self._disk = disk

    @classmethod
    def claim(cls, path: Path, owner: Owner, disk: Disk | None = None) -> PlainFile:
        """Raises OwnedFolderError when another job writes PATH."""
        disk = disk or Disk()
        claim_file(path, owner, disk)
        best = path.with_name(BEST)
        try:
            claim_file(best, owner, disk)
        except OwnedFolderError:
            best = path.with_name(f"model_best-{path.name.split('.')[0]}.pth.tar")
            claim_file(best, owner, disk)
        return cls(path, best, disk)

    def publish(self, data: Path, *, best: bool) -> None:
        """Copy the data of a committed checkpoint. A failure is a sentence: the checkpoint itself is safe."""
        try:
            copy_whole(self._disk, data, self.path)
            if best:
                copy_whole(self._disk, data, self.best)
        except OSError as error:
            sentence = f"{self.path} could not be written: {error.strerror or error}; the checkpoint itself is in {data.parent}"
            print(sentence, file=sys.stderr, flush=True)
