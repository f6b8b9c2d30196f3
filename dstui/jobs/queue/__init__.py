"""SLURM's queue: what its states mean for a job of dstui, and what it says of the user's jobs now."""
