"""The ElasticJob: its contract, its controller and the CLI `ebb`.

Read in this order: contract.py (names), spec.py (the job), pods.py (job -> pods), reconcile.py (the decision, pure),
controller.py (the loop that acts on it), cli/ (what a researcher types). kube/ alone speaks to the API server.
"""
