"""What to do about one job: pure functions from values.Observed to values.Plan. reconcile.plan calls the others in order."""
