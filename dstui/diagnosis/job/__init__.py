"""Diagnose a job folder: its records supplement the logs."""
