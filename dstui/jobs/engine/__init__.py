"""The reports of the hook in each rank about DeepSpeed's engine, read from the job folder."""
