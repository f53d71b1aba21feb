"""Seconds that a job stands still when its machines change: ours in cold mode beside stock torchrun.

systems.py says how each system is started, stock.py is the script that torchrun runs, play.py lets the changes happen,
timeline.py reads what each process wrote (pure), figures.py makes medians and promises of it (pure).
"""
