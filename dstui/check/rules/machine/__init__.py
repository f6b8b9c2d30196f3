"""Rules about the machine: the consequences of its facts for a job."""
