"""What the hook in each rank reported of DeepSpeed's engine, read back from the job folder."""
