"""Watching a job: its head, its ranks, its log, why it ended."""
