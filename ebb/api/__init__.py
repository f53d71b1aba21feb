"""The ElasticJob as an API object, the platform's facts, and the names that controller, client and gateway share.

spec.py (its author's half), status.py (the controller's), schema.py and crd.py (its CRD), platform.py (what the stack built),
contract.py (labels, ports, environment, exit codes, reasons).
"""
