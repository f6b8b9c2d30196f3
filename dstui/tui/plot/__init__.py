"""Plots of metrics over steps."""
