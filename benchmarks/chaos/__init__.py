"""Jobs on the local stack while everything under them breaks, drawn from a seed: `python -m benchmarks.chaos`.

actions.py  draws what breaks, when and for how long (pure)    faults.py   breaks it on a devcluster, and heals it
jobs.py     draws the jobs and their ends (pure)               stack.py    the devcluster, its stack, the planted faults
history.py  the file with all that was seen                    watch.py    pods, jobs and etcd's records, into the history
judge.py    says from the history alone what was not so        run.py      all of it together
planted/    three faults of the product, to show that the judge is not blind

Machines, components, networks and disks are real processes, namespaces and file systems of this machine. The judge knows jobs by
their API objects, their ledgers, what was committed to etcd and the devcluster's own bill; it imports nothing of what it judges.
"""
