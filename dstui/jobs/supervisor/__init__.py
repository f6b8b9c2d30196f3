"""The supervisor of a job: a process of its own, from the job's start to its end."""
