"""What happened to a job, in the order of time. Start at timeline.py."""
