"""Seconds that a job stands still when its machines change, at several sizes of state: ours beside stock torchrun.

systems.py says how each system is started, ours.py and stock.py are what they train (model.py), play.py lets the changes happen,
namespaces.py gives machines a network that can fall silent, timeline.py reads what each process wrote (pure), figures.py makes
medians, promises and goals of it (pure).
"""
