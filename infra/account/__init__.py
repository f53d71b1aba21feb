"""The account behind a stack: what it allows (preflight), what the stack costs in it, what a destroy left in it."""
