"""Reports for people beside the log: curves, and a few validation images with predictions.

    events.py   TensorBoard's event files
    curves.py   the lines of a run as curves in them
    images.py   a grid of images with labels and predictions, as one PNG
    lines.py    facts that come seldom, as JSON lines

Lines, JSON and Prometheus are the run's own. All lies in the job's own folder: tensorboard/, images/. A disk that is full costs
what is shown, never the training.
"""

from ebb.elastic.report.curves import Curves, append
from ebb.elastic.report.events import EventFile
from ebb.elastic.report.images import Labelled, save_images, spread

__all__ = ["Curves", "EventFile", "Labelled", "append", "save_images", "spread"]
