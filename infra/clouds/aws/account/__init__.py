"""Looking at the account, read-only: what preflight and leftovers ask of AWS, through one thin client."""
