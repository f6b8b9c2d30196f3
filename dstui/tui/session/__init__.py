"""What a session holds and learns: the Plan with its history, the machine, findings, look-ups, drafts. Nothing here draws."""
