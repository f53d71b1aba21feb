"""Speed and memory of the ElasticJob controller beside Kubeflow's and JobSet: `python -m benchmarks.controller`.

plane.py        one real Kubernetes control plane       fleet.py       machines that only pretend, by kwok
contenders.py   the controllers and their jobs          pods.py        what happened to pods, and when
load.py         one of them under one load              scenarios.py   creation, losses, dead machines
figures.py      percentiles, promises, the last line    processes.py   programs and their memory

Not measured: training itself, the time a machine or a container needs to start, and anything that a real network adds.
"""
