"""Actions on a job: start it, stop it, take over its supervision."""
