"""The errors of checkpoints: one tree, so that a caller can decide by the kind.

CheckpointError
|- NotWritten     the disk: no space, read-only, gone. The older checkpoints are untouched; training goes on
|- Stale          a newer generation exists: this process may never commit again
|- Unreachable    what decides about commits does not answer: try again
`- RefusedError   nothing to resume from, though something is there: a sentence for the user, and the end of the program
   |- ForeignCheckpointError    checkpoints of another model, another run or another job's folder
   |- DamagedCheckpointsError   all of them are damaged
   `- OwnedFolderError          the folder or file belongs to another job
"""


class CheckpointError(Exception):
    """See the tree above."""


class NotWritten(CheckpointError):
    """The checkpoint could not be written; nothing half-written counts, the older ones stay."""


class Stale(CheckpointError):
    """A newer generation exists: what this one writes is never resumed from."""


class FenceUnreachable(CheckpointError):
    """The commit could not be decided now; the same call may be made again."""


class RefusedError(CheckpointError, ValueError):
    """Going on would train the wrong thing, or throw work away; the message says what to do."""


class ForeignCheckpointError(RefusedError):
    """The folder holds the checkpoints of another model, another run or another job; the message says what differs."""


class DamagedCheckpointsError(RefusedError):
    """There are checkpoints and none of them is whole. Starting from the beginning is for the user to say."""


class OwnedFolderError(RefusedError):
    """Another job writes there."""
