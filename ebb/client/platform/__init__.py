"""Where a platform is, how it is reached, and the connection to it. Start at ebb.py."""
