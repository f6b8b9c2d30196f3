"""What leaves the machine about a job: a zip without secrets."""
