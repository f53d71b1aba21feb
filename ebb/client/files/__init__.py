"""Shared volumes and the insides of workers, through the API server alone. Start at transfer.py."""
