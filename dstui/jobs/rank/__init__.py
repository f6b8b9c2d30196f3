"""Programs that run around a rank, each one file of the standard library."""
