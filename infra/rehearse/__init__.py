"""A rehearsal of a whole stack in its account, from an empty stack to an empty stack: `make rehearse STACK=dev BUDGET=10`.

Read in this order: rehearsal.py (the steps and the promises that they check), budget.py (the money), shell.py (how commands run,
are recorded and are ended), __main__.py (the command). How a cloud takes a machine back on request is the cloud's own:
infra/clouds/<cloud>/reclaim.py. Against mocks of the clouds the same steps run by testing/pulumi/mocks/__main__.py.
"""
