"""The job folder and its files, the index of all runs, and the processes of a job."""
