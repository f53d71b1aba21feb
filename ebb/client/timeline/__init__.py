"""Events of a job in chronological order. Start at timeline.py."""
