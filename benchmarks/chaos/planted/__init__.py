"""Faults of the product that the judge must find, planted into processes of a benchmark's own devcluster and nowhere else."""
