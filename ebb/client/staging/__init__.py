"""What goes along with a job: its code (code.py, delivery.py), and to another platform its checkpoint (clone.py)."""
