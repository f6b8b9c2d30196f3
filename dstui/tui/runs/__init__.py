"""The table of runs, and runs beside each other."""
