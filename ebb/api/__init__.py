"""The ElasticJob as an API object: spec.py (its author's half), status.py (the controller's), schema.py and crd.py (its CRD)."""
