"""One timed epoch at each of several numbers of GPUs, and what more of them are worth: what `ebb bench scaling` does.

    plan = ScalingPlan(name="scaling-resnet50", sizes=(4, 8, 16), preset=PRESETS["resnet50"], data="imagenet")
    async for report in measure(ebb, plan): ...      # after each size; called again, it goes on with what is missing
    Path("scaling.html").write_text(scaling_html(report, made=...))

presets.py   the programs that are measured      run.py   a job for each size, one after the other
figures.py   speed-up, efficiency and cost       page.py  one HTML page with plots
"""

from ebb.client.scaling.figures import ScalingReport, SizeFigures, scaling_report
from ebb.client.scaling.page import scaling_html
from ebb.client.scaling.presets import PRESETS, Preset
from ebb.client.scaling.run import ScalingPlan, measure, prepare_sizes

__all__ = [
    "PRESETS",
    "Preset",
    "ScalingPlan",
    "ScalingReport",
    "SizeFigures",
    "measure",
    "prepare_sizes",
    "scaling_html",
    "scaling_report",
]
