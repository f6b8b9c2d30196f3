"""The folder of a job, its small files, the index of all runs, and the processes that belong to a job."""
