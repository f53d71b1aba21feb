"""Platforms by name (platforms.py), and connections to them (connection.py)."""
