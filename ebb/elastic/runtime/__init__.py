"""What stands behind ebb/elastic/__init__.py: one run of an elastic training, seen from one rank.

config.py      its settings: what a program says, flags, environment
edge.py        the process around a program: sentences, exit codes, its end
run.py         Run: what a program has in its hands
start.py       which generation this is, and which checkpoint it goes on from; rank 0 looks, all get its answer
kept.py        what checkpoints hold
loop.py        the steps, one after the other: agreeing, saving, leaving, writing down; mark.py: are the weights still a step's
evaluation.py  every sample once over all ranks, until a notice comes
step.py        one step: its micro-batches and its gradient
gradients.py   how ranks share gradients; virtual.py does it in an order that no world size changes
plan.py feed.py   which samples a rank reads, and batches of them on the device
group.py watchdog.py   the ranks of a generation, and how long they wait for each other
account.py ledger.py metrics.py waits.py result.py   what a run says about itself
"""
