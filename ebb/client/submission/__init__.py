"""What a user asks for, and the ElasticJob that it becomes. Start at request.py; fit.py sets it on machines."""
