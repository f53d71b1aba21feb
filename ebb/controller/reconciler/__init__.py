"""The decision about one job: pure functions from types.Observed to types.Plan. reconcile.plan calls the others in order."""
