"""A job on several hosts: its agents, and the mirror of their files in the job folder here."""
