"""Code (code.py, delivery.py) and checkpoints (clone.py) that travel with a job."""
