"""Diagnostics of `ebb check`: check.py asks, symptoms.py judges."""
