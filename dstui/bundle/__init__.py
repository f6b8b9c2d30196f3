"""The bundle: a zip of a job for a bug report, without secrets."""
