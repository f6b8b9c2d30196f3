"""Programs that run around a rank, each a single file that needs only the standard library."""
