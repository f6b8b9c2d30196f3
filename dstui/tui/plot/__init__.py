"""Metrics over steps, as a plot."""
