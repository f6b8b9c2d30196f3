"""SLURM's queue: the meaning of its states for a job of dstui, and the present state of the user's jobs."""
