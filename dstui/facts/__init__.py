"""What lies on this machine's disks about a model and about earlier runs: facts for the forecast."""
