"""How long does a job stand still when its machines change? Ours in cold mode beside stock torchrun, on the same machine.

systems.py says how each system is started, stock.py is the script that torchrun runs, play.py lets the changes happen,
timeline.py reads what each process wrote (pure), figures.py makes medians and promises of it (pure).
"""
