"""Numbers out of log lines, and how they go over the steps."""
