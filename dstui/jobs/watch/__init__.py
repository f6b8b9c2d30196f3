"""Observing a job from outside: events, usage, hangs, stacks."""
