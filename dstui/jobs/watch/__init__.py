"""What is to be seen of a job from outside: events, usage, hangs, stacks."""
