"""Rules about the machine: what its facts mean for a job."""
