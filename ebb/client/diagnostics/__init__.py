"""Is everything in order? check.py asks, symptoms.py judges, rights.py is what the verbs need."""
