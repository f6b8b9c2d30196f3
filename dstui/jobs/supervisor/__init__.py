"""The supervisor of a job: a separate process that exists from the job's start to its end."""
