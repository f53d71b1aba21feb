"""Many runs of one program, one for each combination of some values: what `ebb sweep` does.

    points = points_of(parse(["lr=0.1,0.01", "wd=range(0,0.1,0.05)"]), number=None, seed=0)
    await start(ebb, Plan(name="lr-scan", request=request, points=points, max_parallel=2))

overrides.py   the values to vary, as they are typed     points.py   the combinations, and how each reaches the program
halving.py     the rule by which runs stop early         run.py      jobs      view.py   a sweep in plain words
results.py     what each run came to, and the best of them       search.py   runs that choose their points when they begin
"""

from ebb.api.halving import METRICS
from ebb.client.sweep.halving import asha, stop_worst
from ebb.client.sweep.overrides import parse
from ebb.client.sweep.points import FLAGS, HYDRA, Point, points_of
from ebb.client.sweep.results import SweepMetric, metric_of
from ebb.client.sweep.run import Started, SweepPlan, delete, prepared, show, start, stop, watch
from ebb.client.sweep.search import Search, slots
from ebb.client.sweep.view import LABEL_SWEEP, RunView, SweepView

__all__ = [
    "FLAGS",
    "HYDRA",
    "LABEL_SWEEP",
    "METRICS",
    "Point",
    "RunView",
    "Search",
    "Started",
    "SweepMetric",
    "SweepPlan",
    "SweepView",
    "asha",
    "delete",
    "metric_of",
    "parse",
    "points_of",
    "prepared",
    "show",
    "slots",
    "start",
    "stop",
    "stop_worst",
    "watch",
]
