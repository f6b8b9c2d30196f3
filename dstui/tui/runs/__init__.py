"""The table of runs, and the comparison of runs."""
