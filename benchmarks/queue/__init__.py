"""A simulated month of a group's jobs: our order of waiting jobs beside first come, first served, and strict priority."""
