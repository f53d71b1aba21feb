"""Scripts as users write them, each on one library, with the lines that Ebb needs."""
