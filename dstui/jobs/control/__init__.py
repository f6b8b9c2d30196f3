"""Acting for a job: starting it, stopping it, taking over its supervision."""
