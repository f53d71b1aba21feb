"""A user's request, and the ElasticJob that it becomes. Start at request.py; fit.py sets it on machines."""
