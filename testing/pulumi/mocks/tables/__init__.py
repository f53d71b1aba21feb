"""The reviewed tables, one file per cloud: every type that its stack uses, and what a change of each property does."""
