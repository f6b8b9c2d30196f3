"""A job on several hosts: its agents, and the job folder here that mirrors what its ranks write there."""
