"""Is every sample used exactly once, whatever happens to the machines? Seeded histories of real machines, judged from outside.

history.py draws what happens (pure), play.py lets it happen, judge.py says which promise was broken, machines.py and host.py
start the machines, watch.py sees how far they are, planted.py shows that the judge is not blind, records.py keeps what is done.
The trainer is known by its command line and by what it writes alone.
"""
