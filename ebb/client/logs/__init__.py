"""The logs of a job as one stream: all workers merged, across lost and new pods and lost connections, each line once.

    await print_logs(kube, namespace, "digits", sink, files=files)          # what there is now, in the order of time
    job = await follow_logs(kube, namespace, "digits", sink, files=files)   # until the job is over

lines.py knows what a line looks like and which are wanted; pod.py reads what the API server has, with replay.py, volume.py what
the launcher has written to the output volume; sources.py says which of the two holds for a pod.
"""

from ebb.client.logs.follow import follow_logs
from ebb.client.logs.lines import ALL, Choice, Line
from ebb.client.logs.sources import Sink, print_logs
from ebb.client.logs.volume import LogFiles, on_volume

__all__ = ["ALL", "Choice", "Line", "LogFiles", "Sink", "follow_logs", "on_volume", "print_logs"]
