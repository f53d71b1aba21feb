"""A user's request, and the ElasticJob that it becomes.

Start at request.py; program.py finds the folder that goes along, fit.py sets the request on machines.
"""
