"""Metrics from log lines, and their course over the steps."""
