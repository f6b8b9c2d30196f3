"""Facts for the forecast from this machine's disks: about models and earlier runs."""
